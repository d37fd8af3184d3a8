"""Multi-head attention: several attentions side by side, each in a small space of its own."""

from typing import Any

import keras
from keras import ops

from keras_transformer.layers.arguments import check_positive, check_probability, clone_initializer
from keras_transformer.layers.cache import Cache, cache_mask, update_cache
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.masks import combine_masks, key_mask as implicit_mask, look_ahead_mask
from keras_transformer.layers.projection import merge_heads, split_into_heads
from keras_transformer.layers.scaled_dot_product_attention import attention_weights, weighted_sum

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_N) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Self-attention where query and value are the same sequence, cross-attention where they are two. Constructor
    (without `attention_axes`, `sliding_window`, `flash_attention`, `use_gate`), call and weights are those of
    `keras.layers.MultiHeadAttention`, so `ours.set_weights(theirs.get_weights())` gives the
    same outputs. Differences: implicit Keras masks are read and left on the tensors (a second layer sees them too), a
    query's mask hides nothing, a row with nothing to attend to gives the output of an all-zero sum, and there is a
    cache. As in Keras and unlike the paper, the projections have biases unless `use_bias=False`.

    Args:
        num_heads: Number of heads N (the paper's h).
        key_dim: Size of each head's queries and keys H (the paper's d_k).
        value_dim: Size of each head's values (the paper's d_v); `key_dim` if not given.
        dropout: Probability of dropping an attention weight. 0 in the paper.
        use_bias: Whether the four projections add a bias.
        output_shape: Width of the output; the query's width if not given.
        kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer, kernel_constraint,
        bias_constraint: As in every Keras layer, for the four projections.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer`.

    Call arguments:
        query: `(B, T, D)`, floating point.
        value: `(B, S, D_v)`. May be left out where `cache` holds projected keys and values and is not written to.
        key: `(B, S, D_k)`; `value` if not given.
        query_mask: Accepted, since Keras fills it; hides nothing.
        value_mask, key_mask: `(B, S)`, bool, filled by Keras from implicit masks.
        attention_mask: `(B|1, T|1, S)` or `(B|1, N|1, T|1, S)`, bool, `True` = may be attended to.
        return_attention_scores: Whether to return the weights, before dropout, too.
        training: Whether dropout is on.
        use_causal_mask: Whether query t sees keys 0..t only. Needs T = S; not together with a cache.
        cache: A pair `(key, value)`, `(B, N, L, H)` and `(B, N, L, H_v)`: projected keys and values to attend to.
        cache_index: Scalar integer. If given, keys and values of this call are written to the cache at this position
            first, and query t sees positions `0..cache_index + t`. If not, the cache is used as it is.

    Returns:
        The output, `(B, T, D)`, in the compute dtype; with `return_attention_scores=True` also the weights,
        `(B, N, T, S)`, float32 or better; with `cache` also the cache. Several of them as a tuple in this order.

    Raises:
        ValueError: If an argument has an impossible value or shape.
        TypeError: If a mask is not boolean.

    Masking:
        `attention_mask`, `value_mask`, `key_mask` and the causal mask hold together. Hidden keys weigh exactly 0.

    Example:
        >>> target, source = np.ones((2, 5, 16), "float32"), np.ones((2, 7, 16), "float32")
        >>> attention = MultiHeadAttention(num_heads=4, key_dim=8)
        >>> output, weights = attention(target, source, return_attention_scores=True)

    Reference:
        Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = check_positive("num_heads", num_heads)
        self.key_dim = check_positive("key_dim", key_dim)
        self.value_dim = check_positive("value_dim", key_dim if value_dim is None else value_dim)
        self.dropout = check_probability("dropout", dropout)
        self.use_bias = use_bias
        self.output_width = None if output_shape is None else check_positive("output_shape", output_shape)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = seed

        self.query_dense = self._projection("btd,dnh->btnh", (None, num_heads, key_dim), "nh", "query")
        self.key_dense = self._projection("bsd,dnh->bsnh", (None, num_heads, key_dim), "nh", "key")
        self.value_dense = self._projection("bsd,dnh->bsnh", (None, num_heads, self.value_dim), "nh", "value")
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy, name="dropout")

    def _projection(self, equation: str, output_shape: tuple, bias_axes: str, name: str) -> keras.layers.EinsumDense:
        projection = keras.layers.EinsumDense(
            equation,
            output_shape=output_shape,
            bias_axes=bias_axes if self.use_bias else None,
            kernel_initializer=clone_initializer(self.kernel_initializer),
            bias_initializer=clone_initializer(self.bias_initializer),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
        )
        projection.supports_masking = True  # each position alone: without this, Keras warns of a mask that it drops
        return projection

    def build(self, query_shape: tuple, value_shape: tuple | None = None, key_shape: tuple | None = None) -> None:
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        for name, shape in (("query", query_shape), ("value", value_shape), ("key", key_shape)):
            if len(shape) != 3:
                raise ValueError(f"`{name}` must have rank 3, (B, T, D). Received: shape={tuple(shape)}")
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        width = self.output_width or query_shape[-1]
        self.output_dense = self._projection("btnh,nhd->btd", (None, width), "d", "attention_output")
        self.output_dense.build((*query_shape[:2], self.num_heads, self.value_dim))

    def call(
        self,
        query: Tensor,
        value: Tensor | None = None,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        cache: Cache | None = None,
        cache_index: int | Tensor | None = None,
    ) -> Any:
        masks = [attention_mask, implicit_mask(value_mask), implicit_mask(key_mask)]
        if cache is None:
            if cache_index is not None:
                raise ValueError("`cache_index` says where to write in a `cache`, and none was given.")
            if use_causal_mask:
                masks.append(_causal_mask(query, value if key is None else key))
            if query is value and (key is None or key is value):
                query_heads, key_heads, value_heads = split_into_heads(
                    query, self.query_dense, self.key_dense, self.value_dense
                )
            else:
                (query_heads,) = split_into_heads(query, self.query_dense)  # (B, T, D) -> (B, N, T, H)
                key_heads, value_heads = self.project_key_value(value, key)
        else:
            (query_heads,) = split_into_heads(query, self.query_dense)
            if use_causal_mask:
                raise ValueError("`use_causal_mask` counts from key 0; with a `cache` give `cache_index` instead.")
            if cache_index is not None:
                if value_mask is not None or key_mask is not None:
                    raise ValueError(
                        "An implicit mask covers the new keys, not the `cache`: embed with `mask_zero=False`."
                    )
                new_key, new_value = self.project_key_value(value, key)
                masks.append(cache_mask(ops.shape(cache[0])[2], ops.shape(query)[1], cache_index))
                cache = (update_cache(cache[0], new_key, cache_index), update_cache(cache[1], new_value, cache_index))
            key_heads, value_heads = cache

        scores = attention_weights(query_heads, key_heads, combine_masks(*masks))  # (B, N, T, S)
        output = weighted_sum(self.dropout_layer(scores, training=training), value_heads)  # (B, N, T, H_v)
        output = merge_heads(output, self.output_dense)  # (B, T, D)
        results = (output, *((scores,) if return_attention_scores else ()), *((cache,) if cache is not None else ()))
        return results if len(results) > 1 else output

    def project_key_value(self, value: Tensor | None, key: Tensor | None = None) -> Cache:
        """Keys and values of every head: what cross-attention computes once and keeps as its `cache`.

        Args:
            value: `(B, S, D_v)`.
            key: `(B, S, D_k)`; `value` if not given.

        Returns:
            `(B, N, S, H)` and `(B, N, S, H_v)`.
        """
        if value is None:
            raise ValueError("`value` may be left out only where `cache` is given without `cache_index`.")
        if key is None or key is value:
            return split_into_heads(value, self.key_dense, self.value_dense)
        return *split_into_heads(key, self.key_dense), *split_into_heads(value, self.value_dense)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self.output_width,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "seed": self.seed,
        }


def _causal_mask(query: Tensor, key: Tensor) -> Tensor:
    lengths = (query.shape[1], key.shape[1])
    if None not in lengths and lengths[0] != lengths[1]:  # inside a graph a length may be unknown
        raise ValueError(
            "`use_causal_mask` needs queries and keys of one length. "
            f"Received: query={tuple(query.shape)}, key={tuple(key.shape)}"
        )
    return look_ahead_mask(ops.shape(query)[1])
