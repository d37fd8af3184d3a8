"""The loop of every search that follows one hypothesis a row: greedy search and sampling."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer.decoding.length_penalty import check_length_penalty, length_penalty as penalty_of
from keras_transformer.decoding.next_token import IMPOSSIBLE, Limits, NextTokens, Step, write_token

Tensor = Any
Choose = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def follow(
    step: Step, state: Any, choose: Choose, limits: Limits, max_length: int | Tensor, length_penalty: float
) -> tuple[Tensor, Tensor]:
    """Goes on with the chosen token until every row has ended.

    Args:
        step, state, max_length, length_penalty: As in `beam_search`.
        choose: `choose(logits, ids, index)`: the next token of every row, `(R,)`, int32, and its log p, `(R,)`.
        limits: What a sequence may be.

    Returns:
        ids `(R, L)`, int32, and scores `(R,)`, float32: log-probabilities over the length penalty.
    """
    check_length_penalty(length_penalty)
    special, rows = limits.special, ops.shape(limits.max_lengths)[0]

    def unfinished(index: Tensor, token_ids: Tensor, done: Tensor, *_: Any) -> Tensor:
        return ops.logical_and(index < max_length, ops.logical_not(ops.all(done)))

    def body(
        index: Tensor, token_ids: Tensor, done: Tensor, ids: Tensor, scores: Tensor, lengths: Tensor, state: Any
    ) -> tuple:
        logits, state = step(token_ids, index, state)
        chosen, log_p = choose(logits, ids, index)
        scores = ops.where(done, scores, scores + log_p)
        chosen = ops.where(done, special.pad, chosen)
        lengths = lengths + ops.cast(ops.logical_not(done), "int32")
        ids = write_token(ids, chosen, index)
        done = ops.logical_or(done, ops.equal(chosen, special.end))
        return index + 1, chosen, done, ids, scores, lengths, state

    loop = (
        ops.convert_to_tensor(0, dtype="int32"),
        ops.full((rows,), special.start, dtype="int32"),
        ops.zeros((rows,), dtype="bool"),
        ops.full((rows, max_length), special.pad, dtype="int32"),
        ops.zeros((rows,), dtype="float32"),
        ops.zeros((rows,), dtype="int32"),
        keras.tree.map_structure(ops.convert_to_tensor, state),
    )
    _, _, _, ids, scores, lengths, _ = ops.while_loop(unfinished, body, loop)
    possible = scores > IMPOSSIBLE / 2  # not where no sequence obeys the limits
    ids = ops.where(ops.expand_dims(possible, 1), ids, special.pad)
    return ids, ops.where(possible, scores / penalty_of(lengths, length_penalty), IMPOSSIBLE)


def pick(candidates: NextTokens, places: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's candidate at `places`, `(R,)`: its token and its log p."""
    here = ops.equal(ops.arange(candidates.scores.shape[1], dtype="int32"), ops.expand_dims(places, 1))  # (R, C)
    token_ids = ops.sum(ops.where(here, candidates.token_ids, 0), axis=1)
    return token_ids, ops.sum(ops.where(here, candidates.scores, 0.0), axis=1)
