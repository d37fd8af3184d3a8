"""What callbacks ask about the model that is trained: its updates, its logs, whether it is the one that they show."""

import contextlib
from typing import Any

import keras
import numpy as np


def updates_made(model: Any) -> int:
    """Number of optimizer updates, under any strategy; batches that are accumulated are none."""
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


def is_due(every: int, before: int, now: int) -> bool:
    """Whether a multiple of `every` was reached or passed: `steps_per_execution` makes several updates at once."""
    return now // every > before // every


def numbers_in(logs: dict[str, Any] | None) -> dict[str, float]:
    """The logs that are a number each: callbacks may add a name, a date, or an array."""
    numbers = {}
    for name, value in (logs or {}).items():
        with contextlib.suppress(TypeError, ValueError):  # whatever it is that is no number
            if np.ndim(value) == 0 and not isinstance(value, (str, bytes)):
                numbers[name] = float(value)
    return numbers


def check_trained_model(other: Any, trained: keras.Model) -> None:
    """Raises a `ValueError` if a translator's model is not the one that is trained: it would stay the same for ever."""
    if not isinstance(other, keras.Model) or other is trained or not trained.built:
        return
    if {id(weight) for weight in other.weights}.isdisjoint(id(weight) for weight in trained.weights):
        raise ValueError(
            "`translator` must translate with the model that is trained, and has another one. "
            f"Received: {other.name}, while {trained.name} is trained"
        )
