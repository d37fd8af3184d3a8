"""One step of decoding as a search wants it: all hypotheses at once, and what no step changes made before the first."""

from typing import Any, NamedTuple

import keras
from keras import backend, ops

from keras_transformer.layers.decoder_layer import DecoderLayer
from keras_transformer.layers.positional_encoding import encode_positions
from keras_transformer.layers.scaled_dot_product_attention import masked_softmax, weighted_sum
from keras_transformer.models.hypotheses_cache import HypothesesCache
from keras_transformer.models.transformer import Transformer

Tensor = Any
State = dict[str, Any]


class DecodingStep:
    """The function that a search calls, for K hypotheses of each of B sources: `step(token_ids, index, state)`.

    It gives the logits that `Transformer.decode` gives at position `index`. The source's keys and values are computed
    once and belong to the source, not to its hypotheses; those of the hypotheses stay where they were written, and
    `reorder` only notes whose past they are. So the K hypotheses of a source are K queries of one attention.

    Args:
        model: A built `Transformer`.
        encoder_sequence, encoder_padding_mask: From `model.encode`.
        max_length: The longest target L; an integer or a scalar tensor.
        num_beams: K.
        cache_class: How keys and values are kept: `InPlaceCache` where XLA does not compile the search.
        track_coverage: Whether the state keeps how much attention each source token has got.

    Reference:
        Vaswani et al. (2017), section 3.1; in inference the decoder's earlier positions do not change.
    """

    def __init__(
        self,
        model: Transformer,
        encoder_sequence: Tensor,
        encoder_padding_mask: Tensor,
        max_length: int | Tensor,
        num_beams: int = 1,
        cache_class: type[HypothesesCache] = HypothesesCache,
        track_coverage: bool = False,
    ) -> None:
        self.track_coverage, self.num_beams = track_coverage, num_beams
        self.embedding, self.finish = model.target_embedding, model.decoder.finish
        self.precise = backend.result_type(model.compute_dtype, "float32")
        self.positions = ops.cast(encode_positions(0, max_length, self.embedding.d_model), self.precise)  # (L, D)
        self.embeddings = ops.cast(ops.convert_to_tensor(self.embedding.embeddings), self.precise)  # (V, D)
        # Laid out once, before the first step: a plain graph's product with the transpose takes twice as long or more.
        self.to_logits = ops.transpose(self.embeddings)  # (D, V)
        self.cross_mask = ops.expand_dims(encoder_padding_mask, 1)  # (B, 1, 1, S)
        num_heads = model.decoder.layers[0].num_heads
        self.cache = cache_class(ops.shape(encoder_sequence)[0], num_heads, num_beams, max_length)
        self.layers = [LayerStep(layer, encoder_sequence, self.cache) for layer in model.decoder.layers]

    def init_state(self) -> State:
        """The state before the first token."""
        state = {
            "layers": [layer.init_state() for layer in self.layers],
            "past": self.cache.no_past(),
            "place": ops.convert_to_tensor(0, dtype="int32"),
        }
        if self.track_coverage:
            padding = ops.cast(ops.logical_not(self.cross_mask[:, 0, 0]), "float32")  # (B, S): 1 where nothing is to do
            state["coverage"] = ops.repeat(padding, self.num_beams, axis=0)
        return state

    def __call__(self, token_ids: Tensor, index: Tensor, state: State) -> tuple[Tensor, State]:
        """`(B * K,)`, int32, a scalar int32 and the state -> logits, `(B * K, V)`, float32 or better, and the state."""
        x = ops.take(self.embeddings, token_ids, axis=0) * self.embedding.d_model**0.5  # (R, D), R = B * K
        x = ops.cast(x + ops.take(self.positions, index, axis=0), self.embedding.compute_dtype)
        caches, past, place = self.cache.make_room(state["layers"], state["past"], state["place"])
        past = self.cache.own(past, place)
        visible = ops.expand_dims(past, 1)  # (B, 1, K, P)
        layers = []
        for layer, keys_and_values in zip(self.layers, caches, strict=True):
            x, keys_and_values, cross_weights = layer(x, keys_and_values, visible, self.cross_mask, place)
            layers.append(keys_and_values)
        logits = ops.matmul(ops.cast(self.finish(x), self.precise), self.to_logits)
        state = {**state, "layers": layers, "past": past, "place": place + self.num_beams}
        if self.track_coverage:
            seen = ops.mean(cross_weights, axis=1)  # the last layer's, over its heads: (B, N, K, S) -> (B, K, S)
            state["coverage"] = state["coverage"] + ops.reshape(seen, (-1, ops.shape(seen)[2]))
        return logits, state

    def coverage(self, state: State) -> Tensor:
        """`(B * K, S)`: the last layer's attention, its heads' mean, that each source token has got; 1 on padding."""
        return state["coverage"]

    def reorder(self, state: State, parents: Tensor) -> State:
        """The state in which hypothesis r goes on from `parents[r]`, one of the same source; `(B * K,)`, int32."""
        state = {**state, "past": self.cache.reorder(state["past"], parents)}
        if self.track_coverage:
            state["coverage"] = ops.take(state["coverage"], parents, axis=0)
        return state


class LayerStep:
    """One step of a `DecoderLayer`: its weights laid out for rows, and the source's keys and values."""

    def __init__(self, layer: DecoderLayer, encoder_sequence: Tensor, cache: HypothesesCache) -> None:
        attention, cross, feed_forward = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.layer, self.cache, self.activation = layer, cache, feed_forward.activation
        self.key_dim, self.value_dim = attention.key_dim, attention.value_dim
        self.dtype, self.precise = layer.compute_dtype, backend.result_type(layer.compute_dtype, "float32")
        self.query, self.key, self.value = (
            affine(each) for each in (attention.query_dense, attention.key_dense, attention.value_dense)
        )
        merged_width = self.cache.num_heads * self.value_dim
        self.merge = affine(attention.output_dense, width=merged_width)
        self.cross_query, self.cross_merge = affine(cross.query_dense), affine(cross.output_dense, width=merged_width)
        keys, self.cross_values = cross.project_key_value(encoder_sequence)
        self.cross_keys = ops.cast(keys, self.precise)  # (B, N, S, H)
        self.hidden, self.output = affine(feed_forward.hidden_dense), affine(feed_forward.output_dense)

    def init_state(self) -> tuple[Tensor, Tensor]:
        """Keys, in the dtype of the attention's logits, and values before the first token."""
        return self.cache.empty(self.key_dim, self.precise), self.cache.empty(self.value_dim, self.dtype)

    def __call__(
        self,
        x: Tensor,
        keys_and_values: tuple[Tensor, Tensor],
        visible: Tensor,
        cross_mask: Tensor,
        place: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        layer = self.layer
        read = layer.self_attention_residual.before(x)
        query, new = self.query(read), (self.key(read), self.value(read))
        keys, values = (self.cache.write(old, update, place) for old, update in zip(keys_and_values, new, strict=True))
        attended, _ = self._attend(query, keys, values, visible)
        x = layer.self_attention_residual(x, self.merge(attended))
        query = self.cross_query(layer.cross_attention_residual.before(x))
        attended, cross_weights = self._attend(query, self.cross_keys, self.cross_values, cross_mask)
        x = layer.cross_attention_residual(x, self.cross_merge(attended))
        hidden = self.activation(self.hidden(layer.feed_forward_residual.before(x)))
        return layer.feed_forward_residual(x, self.output(hidden)), (keys, values), cross_weights

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """`(R, N * H)`, `(B, N, S, H)`, `(B, N, S, H_v)` -> `(R, N * H_v)` and the weights, `(B, N, K, S)`."""
        scaled = self.cache.split_heads(ops.cast(query, self.precise) * self.key_dim**-0.5, self.key_dim)
        weights = masked_softmax(self.cache.products(scaled, keys), mask)
        return self.cache.merge_heads(weighted_sum(weights, values)), weights


class Affine(NamedTuple):
    """x W + b of rows x, `(R, D) -> (R, F)`."""

    kernel: Tensor  # (D, F)
    bias: Tensor | None  # (F,)

    def __call__(self, rows: Tensor) -> Tensor:
        product = ops.matmul(rows, self.kernel)
        return product if self.bias is None else product + self.bias


def affine(projection: keras.layers.Layer, width: int | None = None) -> Affine:
    """A `Dense` or `EinsumDense` layer whose kernel is flattened to `(width, F)`.

    Args:
        projection: A built layer; its kernel begins with the input's axes.
        width: The input's size; that of the kernel's first axis if not given.

    Raises:
        ValueError: If the layer is quantized: such a kernel means nothing by itself.
    """
    if projection.quantization_mode:
        raise ValueError(
            f"{projection.path} is quantized to {projection.quantization_mode}: search with the model before that."
        )
    dtype, bias = projection.compute_dtype, projection.bias
    kernel = ops.cast(ops.reshape(projection.kernel, (width or projection.kernel.shape[0], -1)), dtype)
    return Affine(kernel, None if bias is None else ops.cast(ops.reshape(bias, (-1,)), dtype))
