"""Variables to arrays and back, on one device, several, or several machines."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer.training.workers import Workers

# Keras numbers names by how many there were before in the process: `dense_3` is the `dense` of another process.
_COUNTER = re.compile(r"_\d+(?=[_/]|$)")


def seed_states(model: keras.Model) -> list[keras.Variable]:
    """Of the dropouts of all layers."""
    return [generator.state for layer in model._flatten_layers() for generator in layer._seed_generators]


def model_variables(model: keras.Model) -> list[keras.Variable]:
    """Weights and the states of the seeds."""
    return list({id(variable): variable for variable in [*model.variables, *seed_states(model)]}.values())


def read_variables(group: str, variables: Sequence[keras.Variable], workers: Workers) -> dict[str, np.ndarray]:
    """Arrays by `<group>/<number>/<path>`.

    Of a variable that replicas keep apart until it is read, as metrics are, the array holds each replica's value; with
    several workers, where a process sees its own alone, their total.
    """
    names = (f"{group}/{number:04d}/{variable.path}" for number, variable in enumerate(variables))
    return {name: _read(variable, workers) for name, variable in zip(names, variables, strict=True)}


def assign_variables(variables: Sequence[keras.Variable], arrays: Sequence[np.ndarray], workers: Workers) -> None:
    """Assigns what `read_variables` has read, also with another number of replicas or workers."""
    for variable, array in zip(variables, arrays, strict=True):
        _assign(variable, array, workers)


def arrays_of(group: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a group, by the variables' paths and numbers."""
    return {name.removeprefix(f"{group}/"): array for name, array in arrays.items() if name.startswith(f"{group}/")}


def check_same_variables(
    path: Path, group: str, variables: Sequence[keras.Variable], arrays: dict[str, np.ndarray]
) -> None:
    """Compares names, shapes and types.

    Raises:
        ValueError: At the first difference.
    """
    here = [_describe(variable.path, variable.shape, variable.dtype) for variable in variables]
    there = []
    for number, (name, array) in enumerate(arrays_of(group, arrays).items()):
        kept_apart = number < len(variables) and _is_kept_apart(variables[number])
        there.append(_describe(name.partition("/")[2], array.shape[kept_apart:], array.dtype.name))
    for saved, wanted in itertools.zip_longest(there, here):
        if saved is None or wanted is None or _COUNTER.sub("", saved) != _COUNTER.sub("", wanted):
            raise ValueError(
                f"{path} is of another configuration: it has {saved or 'nothing more'} where this {group} has "
                f"{wanted or 'nothing more'}. Take the settings that it was trained with, or another directory."
            )


def _describe(path: str, shape: Sequence[int], dtype: str) -> str:
    return f"{path} ({', '.join(map(str, shape))}) {dtype}"


def _is_kept_apart(variable: keras.Variable) -> bool:
    return variable.synchronization == "on_read"


def _parts(variable: keras.Variable) -> Sequence[Any]:
    """Each local replica's own variable."""
    return getattr(variable.value, "values", None) or [variable]


def _read(variable: keras.Variable, workers: Workers) -> np.ndarray:
    if not _is_kept_apart(variable):
        return keras.ops.convert_to_numpy(variable.value)
    if workers.count > 1:
        return variable.value.read_value().numpy()[None]  # all workers take part
    return np.stack([keras.ops.convert_to_numpy(part) for part in _parts(variable)])


def _assign(variable: keras.Variable, array: np.ndarray, workers: Workers) -> None:
    if not _is_kept_apart(variable):
        variable.assign(array)
        return
    parts = _parts(variable)
    if workers.count > 1 or len(parts) != len(array):
        if variable.aggregation == "sum":
            # One replica gets the total, whole: TensorFlow's own `assign` divides it, and rounds.
            values = np.zeros((len(parts), *array.shape[1:]), array.dtype)
            if workers.is_chief:
                values[0] = array.sum(0)
        else:
            values = np.stack([array.mean(0).astype(array.dtype)] * len(parts))
        array = values
    for part, value in zip(parts, array, strict=True):
        part.assign(value)
