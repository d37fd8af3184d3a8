"""No n tokens twice: what a hypothesis may not say, since it has said it already."""

from typing import Any

from keras import ops

Tensor = Any


def repeating_tokens(ids: Tensor, index: Tensor, size: int, nothing: int) -> Tensor:
    """The tokens that would, at position `index`, complete `size` tokens in a row that stand in the row already.

    Args:
        ids: `(R, L)`, int32: the tokens so far, at positions before `index`.
        index: Scalar int32.
        size: n, 1 or more.
        nothing: The id that stands for no token.

    Returns:
        `(R, L)`, int32: at position p the token there, if the n - 1 tokens before it are the row's last n - 1; else
        `nothing`.

    Reference:
        Paulus et al. (2017), "A Deep Reinforced Model for Abstractive Summarization", section 2.5.
    """
    length = ops.shape(ids)[1]
    positions = ops.arange(length, dtype="int32")
    completed = ops.logical_and(positions >= size - 1, positions < index)  # (L,): an n-gram ends here
    repeats = ops.broadcast_to(completed, ops.shape(ids))
    for back in range(1, size):
        last = ops.take(ids, ops.maximum(index - back, 0), axis=1)  # (R,)
        before = ops.roll(ids, back, axis=1)  # at p, the token of position p - back; what rolls over is not completed
        repeats = ops.logical_and(repeats, ops.equal(before, ops.expand_dims(last, 1)))
    return ops.where(repeats, ids, nothing)
