"""What callbacks ask about the model that is trained: its updates, and whether it is the one that they show."""

from typing import Any

import keras


def updates_made(model: Any) -> int:
    """Number of optimizer updates, under any strategy; batches that are accumulated are none."""
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


def is_due(every: int, before: int, now: int) -> bool:
    """Whether a multiple of `every` was reached or passed: `steps_per_execution` makes several updates at once."""
    return now // every > before // every


def check_trained_model(other: Any, trained: keras.Model) -> None:
    """Raises a `ValueError` if a translator's model is not the one that is trained: it would stay the same for ever."""
    if not isinstance(other, keras.Model) or other is trained or not trained.built:
        return
    if {id(weight) for weight in other.weights}.isdisjoint(id(weight) for weight in trained.weights):
        raise ValueError(
            "`translator` must translate with the model that is trained, and has another one. "
            f"Received: {other.name}, while {trained.name} is trained"
        )
