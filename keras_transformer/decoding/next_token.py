"""Which token may come next, and how likely each is: what every search has in common."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from keras import ops

Tensor = Any
Step = Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]]  # (token_ids, index, state) -> (logits, state)

IMPOSSIBLE = -1e9  # the score of what cannot be; finite, so that differences stay numbers


class TokenIds(NamedTuple):
    """The ids with a meaning of their own."""

    pad: int = 0
    start: int = 2
    end: int = 3


def next_token_scores(logits: Tensor, must_end: Tensor, special: TokenIds) -> Tensor:
    """log p of every next token; what may not come is impossible.

    Padding and start are never generated; where a hypothesis has reached its longest, only the end may come. The
    probabilities are the model's own: what is ruled out keeps its share, so that a hypothesis' score is the same
    whether it was searched or given.

    Args:
        logits: `(R, V)`.
        must_end: `(R,)`, bool.
        special: The special ids.

    Returns:
        `(R, V)`, float32.
    """
    logits = ops.cast(logits, "float32")
    vocabulary = np.arange(logits.shape[-1])
    never = np.isin(vocabulary, (special.pad, special.start))
    allowed = ops.where(ops.expand_dims(must_end, 1), vocabulary == special.end, ~never)  # (R, V)
    log_probabilities = logits - ops.logsumexp(logits, axis=-1, keepdims=True)
    return ops.where(allowed, log_probabilities, IMPOSSIBLE)


def write_token(ids: Tensor, token_ids: Tensor, index: Tensor) -> Tensor:
    """`ids`, `(..., L)`, with `token_ids`, `(...)`, at position `index`."""
    here = ops.arange(ops.shape(ids)[-1], dtype="int32") == index
    return ops.where(here, ops.expand_dims(token_ids, -1), ids)
