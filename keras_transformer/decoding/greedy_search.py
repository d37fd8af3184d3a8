"""Greedy search: the likeliest token at every step."""

from typing import Any

from keras import ops

from keras_transformer.decoding.next_token import Limits, Step, best_next_tokens
from keras_transformer.decoding.one_hypothesis import follow, pick

Tensor = Any


def greedy_search(
    step: Step, state: Any, limits: Limits, max_length: int | Tensor, length_penalty: float = 0.6
) -> tuple[Tensor, Tensor]:
    """What `beam_search` does with one beam; arguments and results are described there.

    Returns:
        ids `(B, 1, L)`, int32, and scores `(B, 1)`, float32.
    """

    def likeliest(logits: Tensor, ids: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        best = best_next_tokens(logits, 1, ids, index, limits)
        return pick(best, ops.cast(ops.argmax(best.scores, axis=-1), "int32"))

    ids, scores = follow(step, state, likeliest, limits, max_length, length_penalty)
    return ops.expand_dims(ids, 1), ops.expand_dims(scores, 1)
