"""How many optimizer updates a model has seen."""

from typing import Any

import keras


def updates_made(model: Any) -> int:
    """Number of optimizer updates, under any strategy; batches that are accumulated are none."""
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


def is_due(every: int, before: int, now: int) -> bool:
    """Whether a multiple of `every` was reached or passed: `steps_per_execution` makes several updates at once."""
    return now // every > before // every
