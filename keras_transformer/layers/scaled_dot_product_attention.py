"""Scaled dot-product attention: a weighted sum of all values, drawn anew by every query."""

from typing import Any

from keras import backend, ops

from keras_transformer.layers.masks import check_mask, with_heads

Tensor = Any


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V.

    Each of the T queries is compared with each of the S keys; the softmax turns the comparisons into weights that
    sum to 1, and the output is the values' sum under these weights. `d_v` need not be `d_k`.

    Args:
        query: `(B, T, d_k)`, or `(B, N, T, d_k)` with heads. Floating point.
        key: `(B, S, d_k)` or `(B, N, S, d_k)`.
        value: `(B, S, d_v)` or `(B, N, S, d_v)`.
        mask: Optional, bool, `True` = may be attended to: `(B|1, T|1, S)`, or rank 4 with heads.

    Returns:
        `(output, weights)`: the output, `(B, T, d_v)` or `(B, N, T, d_v)`, of the value's dtype, and the weights,
        `(B, T, S)` or `(B, N, T, S)`, float32 or better.

    Raises:
        ValueError: If ranks or sizes do not fit each other, the mask's included.
        TypeError: If `mask` is not boolean, or another argument is not floating point.

    Masking:
        A hidden key's weight is exactly 0. A query that may attend to nothing gets zeros.

    Example:
        >>> query, key, value = [[[1.0, 0.0]]], [[[1.0, 0.0], [0.0, 1.0]]], [[[10.0], [20.0]]]
        >>> output, weights = scaled_dot_product_attention(query, key, value)

    Reference:
        Vaswani et al. (2017), section 3.2.1, equation 1.
    """
    query, key, value = (ops.convert_to_tensor(x) for x in (query, key, value))
    _check_shapes(query, key, value)
    weights = attention_weights(query, key, mask)
    return weighted_sum(weights, value), weights


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)): how much of each value goes to each query.

    Scores, mask and softmax are computed in float32 or better, from the scaled query on: rounded to 16 bits, scores
    would be off by a hundredth, and large ones overflow. Arguments and result are those of
    `scaled_dot_product_attention`.
    """
    precise = backend.result_type(query.dtype, "float32")
    scaled_query = ops.cast(query, precise) * (query.shape[-1] ** -0.5)
    scores = ops.matmul(scaled_query, ops.swapaxes(ops.cast(key, precise), -1, -2))  # (..., T, S)
    return masked_softmax(scores, mask)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis in which hidden keys weigh exactly 0, also where every key is hidden."""
    if mask is None:
        return _softmax(scores)
    mask = check_mask(mask)
    if len(scores.shape) == 4:
        mask = with_heads(mask)
    _check_mask_fits(mask, scores)
    lowest = ops.cast(-1e30, scores.dtype)
    weights = _softmax(ops.where(mask, scores, lowest))
    # A second select: where all keys are hidden, the softmax of equal scores is uniform, and must be 0.
    return ops.where(mask, weights, ops.zeros_like(weights))


def weighted_sum(weights: Tensor, value: Tensor) -> Tensor:
    """The values' combination under `weights`, in the value's dtype. `(..., T, S), (..., S, d_v) -> (..., T, d_v)`."""
    return ops.matmul(ops.cast(weights, value.dtype), value)


def _softmax(scores: Tensor) -> Tensor:
    # A key that is alone gets all the weight, with a gradient of 0; Keras would warn of a softmax over one.
    return 0.0 * scores + 1.0 if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"Received: query={tuple(query.shape)}, key={tuple(key.shape)}, value={tuple(value.shape)}"
    dtypes = [backend.standardize_dtype(x.dtype) for x in (query, key, value)]
    if not all(backend.is_float_dtype(dtype) for dtype in dtypes):
        raise TypeError(f"`query`, `key` and `value` must be floating point. Received: dtypes={dtypes}")
    ranks = {len(x.shape) for x in (query, key, value)}
    if ranks not in ({3}, {4}):
        raise ValueError(f"`query`, `key` and `value` must all have rank 3, (B, T, d), or 4, (B, N, T, d). {shapes}")
    if _differ(query.shape[-1], key.shape[-1]):
        raise ValueError(f"`query` and `key` must have the same last size d_k. {shapes}")
    if _differ(key.shape[-2], value.shape[-2]):
        raise ValueError(f"`key` and `value` must have the same length S. {shapes}")


def _check_mask_fits(mask: Tensor, scores: Tensor) -> None:
    """Raises where a mask would not be broadcast to the scores but the scores to the mask, making more queries."""
    if (
        len(mask.shape) != len(scores.shape)
        or _differ(mask.shape[-1], scores.shape[-1])
        or any(size != 1 and _differ(size, expected) for size, expected in zip(mask.shape, scores.shape, strict=True))
    ):
        raise ValueError(
            "The mask's last size must be S, each other one 1 or that of the attention weights. "
            f"Received: mask={tuple(mask.shape)}, weights={tuple(scores.shape)}"
        )


def _differ(size: int | None, other: int | None) -> bool:
    """Whether two sizes are known to differ; inside a graph a size may be unknown."""
    return size is not None and other is not None and size != other
