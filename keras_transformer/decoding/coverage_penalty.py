"""The coverage penalty: a translation that has not looked at a source token may have left it out."""

import math
from typing import Any

from keras import ops

Tensor = Any


def log_coverage(coverage: Tensor) -> Tensor:
    """Sum over the source of log(min(coverage, 1)): at most 0, which is where every token has got its share.

    Args:
        coverage: `(R, S)`: the attention that each source token has got in all steps together; 1 on padding. A token
            without any counts as 1e-6.

    Returns:
        `(R,)`, float32.

    Reference:
        Wu et al. (2016), "Google's Neural Machine Translation System", equation 14.
    """
    return ops.sum(ops.log(ops.clip(ops.cast(coverage, "float32"), 1e-6, 1.0)), axis=-1)


def check_coverage_penalty(coverage_penalty: float, num_beams: int) -> float:
    """Returns the penalty, or raises `ValueError`: where it is negative, or there is one beam and nothing to choose."""
    if not 0 <= coverage_penalty < math.inf:
        raise ValueError(
            f"`coverage_penalty` must be 0 or more and finite. Received: coverage_penalty={coverage_penalty!r}"
        )
    if coverage_penalty and num_beams == 1:
        raise ValueError(
            "`coverage_penalty` needs `num_beams` of 2 or more. "
            f"Received: coverage_penalty={coverage_penalty!r}, num_beams=1"
        )
    return coverage_penalty
