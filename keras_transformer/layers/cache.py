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

    Raises:
        ValueError: If the update would end outside the cache, as far as that is known outside the graph.
    """
    _check_fits(cache.shape[2], update.shape[2], index)
    steps = ops.shape(update)[2]
    offset = ops.arange(ops.shape(cache)[2], dtype="int32") - ops.cast(index, "int32")  # (L,)
    if update.shape[2] != 1:
        update = ops.take(update, ops.clip(offset, 0, steps - 1), axis=2)  # (B, N, L, H)
    written = ops.logical_and(offset >= 0, offset < steps)
    return ops.where(ops.expand_dims(written, -1), ops.cast(update, cache.dtype), cache)  # (L, 1) against (B, N, L, H)


def cache_mask(length: int | Tensor, steps: int | Tensor, index: int | Tensor) -> Tensor:
    """The filled positions that each of `steps` queries, the first at position `index`, may attend to.

    Args:
        length: The cache's length L.
        steps: Number of queries T.
        index: Scalar integer, the first query's position.

    Returns:
        `(1, T, L)`, bool: key `j` is visible to query `t` if `j <= index + t`.
    """
    keys = ops.arange(length, dtype="int32")
    queries = ops.arange(steps, dtype="int32") + ops.cast(index, "int32")
    return ops.expand_dims(ops.expand_dims(keys, 0) <= ops.expand_dims(queries, 1), 0)


def _check_fits(length: int | None, steps: int | None, index: int | Tensor) -> None:
    first = index if isinstance(index, int) else 0
    if length is not None and steps is not None and not 0 <= first <= length - steps:
        raise ValueError(
            "The cache is too short for the update, or the index negative. "
            f"Received: index={index}, {steps} positions to write, a cache of length {length}"
        )
