"""The length penalty: without it, a search by log-probability prefers the short."""

import math
from typing import Any

from keras import ops

Tensor = Any


def length_penalty(length: int | Tensor, alpha: float) -> Tensor:
    """((5 + length) / 6)^alpha: what a hypothesis' log-probability is divided by.

    Args:
        length: Number of generated tokens, the end token included; an integer or an integer tensor.
        alpha: 0 for no penalty; 0.6 in the paper.

    Returns:
        float32, of the length's shape.

    Reference:
        Wu et al. (2016), equation 14; Vaswani et al. (2017), section 6.1.
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def check_length_penalty(alpha: float) -> float:
    """Returns `alpha`, or raises: below 0, a longer hypothesis could never be bounded, and the search not be exact."""
    if not 0 <= alpha < math.inf:
        raise ValueError(f"`length_penalty` must be 0 or more and finite. Received: length_penalty={alpha!r}")
    return alpha
