"""One layer of the decoder: masked self-attention, cross-attention to the encoder's output, feed-forward network."""

from typing import Any

import keras
from keras import ops

from keras_transformer.layers.cache import Cache
from keras_transformer.layers.masks import combine_masks, key_mask
from keras_transformer.layers.transformer_layer import TransformerLayer

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderLayer(TransformerLayer):
    """x = LN(x + MaskedSelfAttention(x)); x = LN(x + CrossAttention(x, memory)); x = LN(x + FFN(x)).

    The self-attention always hides the future: position t is a function of positions 0..t alone.

    Args:
        num_heads, d_ff, dropout, attention_dropout, activation, normalize_first, layer_norm_epsilon, key_dim,
        value_dim, kernel_initializer, bias_initializer, seed, **kwargs: As in `TransformerLayer`.

    Call arguments:
        decoder_sequence: `(B, T, D)`, floating point.
        encoder_sequence: `(B, S, D_e)`, the encoder's output. Not needed with a cache.
        attention_mask: What the self-attention may see besides the look-ahead mask: `(B|1, T|1, T)` or with heads, or
            `(B|1, T|1, L)` with a cache; bool, `True` = may be attended to.
        encoder_padding_mask: `(B|1, T|1, S)` or with heads, bool: the source's real tokens.
        decoder_sequence_mask, encoder_sequence_mask: `(B, T)` and `(B, S)`, bool, filled by Keras from implicit masks.
        training: Whether dropout is on.
        return_attention_scores: Whether to return the weights too.
        cache: From `init_cache`. With it, `decoder_sequence` holds the tokens from position `cache_index` on.
        cache_index: Scalar integer.

    Returns:
        `(B, T, D)`, in the compute dtype; with scores also the self-attention's weights, `(B, N, T, T|L)`, and the
        cross-attention's, `(B, N, T, S)`, float32 or better; with a cache also the updated cache. Several as a tuple.

    Raises:
        ValueError, TypeError: As `MultiHeadAttention` does.

    Masking:
        Cross-attention is masked by the source's padding alone. Explicit and implicit masks hold together.

    Example:
        >>> source_ids = np.array([[5, 7, 9], [5, 7, 0]])
        >>> target, memory = np.ones((2, 4, 16), "float32"), np.ones((2, 3, 16), "float32")
        >>> layer = DecoderLayer(num_heads=4, d_ff=32)
        >>> output = layer(target, memory, encoder_padding_mask=padding_mask(source_ids))

    Reference:
        Vaswani et al. (2017), section 3.1 and figure 1, right.
    """

    def build(self, decoder_sequence_shape: tuple, encoder_sequence_shape: tuple | None = None) -> None:
        encoder_sequence_shape = encoder_sequence_shape or decoder_sequence_shape
        d_model = decoder_sequence_shape[-1]
        self.self_attention = self.make_attention(d_model, "self_attention")
        self.self_attention_residual = self.make_residual("self_attention_residual")
        self.cross_attention = self.make_attention(d_model, "cross_attention")
        self.cross_attention_residual = self.make_residual("cross_attention_residual")
        self.feed_forward = self.make_feed_forward()
        self.feed_forward_residual = self.make_residual("feed_forward_residual")
        self.cross_attention.build(decoder_sequence_shape, encoder_sequence_shape)
        for layer in (
            self.self_attention,
            self.self_attention_residual,
            self.cross_attention_residual,
            self.feed_forward,
            self.feed_forward_residual,
        ):
            layer.build(decoder_sequence_shape)

    def call(
        self,
        decoder_sequence: Tensor,
        encoder_sequence: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        decoder_sequence_mask: Tensor | None = None,
        encoder_sequence_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        cache: dict[str, Cache] | None = None,
        cache_index: int | Tensor | None = None,
    ) -> Any:
        if (cache is None) != (cache_index is None):
            raise ValueError("`cache` and `cache_index` go together: give both or neither.")
        if cache is None and encoder_sequence is None:
            raise ValueError("`encoder_sequence` may be left out only where a `cache` is given.")
        if cache is not None and decoder_sequence_mask is not None:
            raise ValueError("An implicit mask covers the new tokens, not the `cache`: embed with `mask_zero=False`.")
        options = {"training": training, "return_attention_scores": True}
        x = decoder_sequence

        read = self.self_attention_residual.before(x)
        self_mask = combine_masks(attention_mask, key_mask(decoder_sequence_mask))
        if cache is None:
            attended, self_scores = self.self_attention(
                read, read, attention_mask=self_mask, use_causal_mask=True, **options
            )
        else:
            attended, self_scores, self_cache = self.self_attention(
                read, read, attention_mask=self_mask, cache=cache["self"], cache_index=cache_index, **options
            )
        x = self.self_attention_residual(x, attended, training=training)

        read = self.cross_attention_residual.before(x)
        cross_mask = combine_masks(encoder_padding_mask, key_mask(encoder_sequence_mask))
        cross_cache = None if cache is None else cache["cross"]
        attended, cross_scores, *_ = self.cross_attention(
            read, encoder_sequence, attention_mask=cross_mask, cache=cross_cache, **options
        )
        x = self.cross_attention_residual(x, attended, training=training)

        read = self.feed_forward_residual.before(x)
        x = self.feed_forward_residual(x, self.feed_forward(read, training=training), training=training)

        scores = (self_scores, cross_scores) if return_attention_scores else ()
        caches = ({"self": self_cache, "cross": cross_cache},) if cache is not None else ()
        return (x, *scores, *caches) if scores or caches else x

    def init_cache(self, encoder_sequence: Tensor, max_length: int) -> dict[str, Cache]:
        """The cache before the first token: zeros for the self-attention, keys and values of the encoder's output.

        Args:
            encoder_sequence: `(B, S, D_e)`.
            max_length: The longest target L that will be decoded.

        Returns:
            `{"self": (key, value), "cross": (key, value)}`, of lengths L and S.
        """
        attention = self.self_attention
        batch = ops.shape(encoder_sequence)[0]
        sizes = (attention.key_dim, attention.value_dim)
        key, value = (
            ops.zeros((batch, attention.num_heads, max_length, size), dtype=self.compute_dtype) for size in sizes
        )
        return {"self": (key, value), "cross": self.cross_attention.project_key_value(encoder_sequence)}
