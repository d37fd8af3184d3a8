"""The key/value cache of step-by-step decoding: plain tensors of fixed size, passed in and handed out.

A cache is a pair `(key, value)` of shapes `(B, N, L, H)` and `(B, N, L, H_v)`, where L is the longest target. Step
`index` writes its projected keys and values at position `index` and attends to positions `0..index`.
"""

from typing import Any

from keras import ops

Tensor = Any
Cache = tuple[Tensor, Tensor]


def update_cache(cache: Tensor, update: Tensor, index: int | Tensor) -> Tensor:
    """Writes `update` into `cache` at positions `index, index + 1, ...`.

    A select over positions, not a slice update: the same few operations on every backend, under XLA and in a server
    whose graph may hold no XLA operation.

    Args:
        cache: `(B, N, L, H)`.
        update: `(B, N, T, H)`, T <= L.
        index: Scalar integer, the first position to write.

    Returns:
        The updated cache, `(B, N, L, H)`, of the cache's dtype.
    """
    length, steps = cache.shape[2], update.shape[2]
    offset = ops.arange(length, dtype="int32") - ops.cast(index, "int32")  # (L,)
    if steps != 1:
        update = ops.take(update, ops.clip(offset, 0, steps - 1), axis=2)  # (B, N, L, H)
    written = ops.logical_and(offset >= 0, offset < steps)
    return ops.where(ops.reshape(written, (1, 1, length, 1)), ops.cast(update, cache.dtype), cache)


def cache_mask(length: int, steps: int, index: int | Tensor) -> Tensor:
    """The filled positions that each of `steps` queries, the first at position `index`, may attend to.

    Args:
        length: The cache's length L.
        steps: Number of queries T.
        index: Scalar integer, the first query's position.

    Returns:
        `(1, T, L)`, bool: key `j` is visible to query `t` if `j <= index + t`.
    """
    keys = ops.reshape(ops.arange(length, dtype="int32"), (1, 1, length))
    queries = ops.reshape(ops.arange(steps, dtype="int32"), (1, steps, 1)) + ops.cast(index, "int32")
    return keys <= queries
