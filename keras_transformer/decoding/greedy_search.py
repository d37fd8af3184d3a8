"""Greedy search: the likeliest token at every step."""

from typing import Any

import keras
from keras import ops

from keras_transformer.decoding.length_penalty import check_length_penalty, length_penalty as penalty_of
from keras_transformer.decoding.next_token import Step, TokenIds, next_token_scores, write_token

Tensor = Any


def greedy_search(
    step: Step,
    state: Any,
    max_lengths: Tensor,
    max_length: int | Tensor,
    length_penalty: float = 0.6,
    special: TokenIds = TokenIds(),  # noqa: B008 (an immutable tuple)
) -> tuple[Tensor, Tensor]:
    """What `beam_search` does with one beam; arguments and results are described there.

    Returns:
        ids `(B, 1, L)`, int32, and scores `(B, 1)`, float32.
    """
    check_length_penalty(length_penalty)
    max_lengths = ops.cast(max_lengths, "int32")
    batch = ops.shape(max_lengths)[0]

    def unfinished(index: Tensor, token_ids: Tensor, done: Tensor, *_: Any) -> Tensor:
        return ops.logical_and(index < max_length, ops.logical_not(ops.all(done)))

    def body(
        index: Tensor, token_ids: Tensor, done: Tensor, ids: Tensor, scores: Tensor, lengths: Tensor, state: Any
    ) -> tuple:
        logits, state = step(token_ids, index, state)
        token_scores = next_token_scores(logits, index + 1 >= max_lengths, special)  # (B, V)
        chosen = ops.cast(ops.argmax(token_scores, axis=-1), "int32")
        scores = ops.where(done, scores, scores + ops.max(token_scores, axis=-1))
        chosen = ops.where(done, special.pad, chosen)
        lengths = lengths + ops.cast(ops.logical_not(done), "int32")
        ids = write_token(ids, chosen, index)
        done = ops.logical_or(done, ops.equal(chosen, special.end))
        return index + 1, chosen, done, ids, scores, lengths, state

    loop = (
        ops.convert_to_tensor(0, dtype="int32"),
        ops.full((batch,), special.start, dtype="int32"),
        ops.zeros((batch,), dtype="bool"),
        ops.full((batch, max_length), special.pad, dtype="int32"),
        ops.zeros((batch,), dtype="float32"),
        ops.zeros((batch,), dtype="int32"),
        keras.tree.map_structure(ops.convert_to_tensor, state),
    )
    _, _, _, ids, scores, lengths, _ = ops.while_loop(unfinished, body, loop)
    return ops.expand_dims(ids, 1), ops.expand_dims(scores / penalty_of(lengths, length_penalty), 1)
