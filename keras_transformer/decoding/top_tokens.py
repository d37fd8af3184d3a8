"""The few largest of many: top-k over a vocabulary, read once."""

from typing import Any

from keras import ops

Tensor = Any


def top_tokens(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of every row, largest first, and where they stand.

    The row is cut into pieces; the `count` largest stand in the `count` pieces with the largest maxima, so only these
    are sorted.

    Args:
        scores: `(R, V)`.
        count: C, at most V.

    Returns:
        Values and token ids, int32, `(R, C)`.
    """
    vocabulary_size = scores.shape[-1]
    size = _piece_size(vocabulary_size, count)
    if size == 1:
        values, token_ids = ops.top_k(scores, count)
        return values, ops.cast(token_ids, "int32")
    number = vocabulary_size // size
    pieces = ops.reshape(scores, (-1, number, size))  # (R, P, V / P)
    _, best = ops.top_k(ops.max(pieces, axis=-1), count)
    best = ops.cast(best, "int32")  # (R, C)
    rows = ops.expand_dims(ops.arange(ops.shape(scores)[0], dtype="int32"), 1)  # (R, 1)
    chosen = ops.take(ops.reshape(pieces, (-1, size)), rows * number + best, axis=0)  # (R, C, V / P)
    values, places = ops.top_k(ops.reshape(chosen, (-1, count * size)), count)
    places = ops.cast(places, "int32")
    piece = ops.take(ops.reshape(best, (-1,)), rows * count + places // size, axis=0)
    return values, piece * size + places % size


def _piece_size(vocabulary_size: int, count: int) -> int:
    """The divisor of the vocabulary's size that leaves least to sort; 1 where cutting saves nothing."""
    divisors = [size for size in range(1, int(vocabulary_size**0.5) + 1) if vocabulary_size % size == 0]
    best = min(divisors, key=lambda size: vocabulary_size // size + count * size)
    return best if 4 * (vocabulary_size // best + count * best) < vocabulary_size else 1
