"""What callbacks know, as JSON and arrays: the patience of `EarlyStopping`, the history, and so on."""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

_SCALARS = (bool, int, float, str, type(None))
_ALWAYS_NEW = {"model", "_model", "params", "validation_data"}


def keyed(callbacks: Sequence[keras.callbacks.Callback]) -> dict[str, keras.callbacks.Callback]:
    """Callbacks by class name and number among those of their class."""
    counts: dict[str, int] = {}
    result = {}
    for callback in callbacks:
        name = type(callback).__name__
        counts[name] = counts.get(name, -1) + 1
        result[f"{name}/{counts[name]}"] = callback
    return result


def attributes(callbacks: Sequence[keras.callbacks.Callback]) -> dict[str, dict[str, Any]]:
    """A copy of what each callback holds in plain attributes."""
    return {key: copy.deepcopy(_attributes(callback)) for key, callback in keyed(callbacks).items()}


def callbacks_state(
    callbacks: Sequence[keras.callbacks.Callback],
    at_start: dict[str, dict[str, Any]],
    arrays: dict[str, np.ndarray],
    ended: tuple[int, dict] | None = None,
) -> dict[str, Any]:
    """The state of each callback, fit for JSON.

    `get_state()` of those that define it, else the attributes that training has changed: plain numbers, strings,
    `None`, arrays, or lists, tuples and dicts of them.

    Args:
        callbacks: The callbacks.
        at_start: Their `attributes` when training began.
        arrays: Gets the arrays of the states.
        ended: Number and logs of the epoch that ends now, which `History` has not seen yet.
    """
    states = {}
    for key, callback in keyed(callbacks).items():
        if hasattr(callback, "get_state"):
            states[key] = _encode(callback.get_state(), arrays, f"callbacks/{key}")
            continue
        states[key] = {}
        before = at_start.get(key, {})
        for name, value in _attributes(callback, ended).items():
            if name not in before or not _same(value, before[name]):
                states[key][name] = _encode(value, arrays, f"callbacks/{key}/{name}")
    return states


def restore_callbacks(
    callbacks: Sequence[keras.callbacks.Callback],
    states: dict[str, Any],
    arrays: dict[str, np.ndarray],
    chosen: Sequence[keras.callbacks.Callback] | None = None,
) -> None:
    """Gives each callback, or those `chosen` among them, the state of its namesake; one that is new keeps its own."""
    for key, callback in keyed(callbacks).items():
        if key not in states or (chosen is not None and callback not in chosen):
            continue
        if hasattr(callback, "set_state"):
            callback.set_state(_decode(states[key], arrays))
        else:
            for name, value in states[key].items():
                setattr(callback, name, _decode(value, arrays))


def ended_training(callbacks: Sequence[keras.callbacks.Callback], states: dict[str, Any]) -> bool:
    """Whether an `EarlyStopping` among these had run out of patience."""
    return any(
        states[key].get("stopped_epoch", 0) > 0 and states[key].get("wait", 0) >= callback.patience
        for key, callback in keyed(callbacks).items()
        if isinstance(callback, keras.callbacks.EarlyStopping) and key in states
    )


def _attributes(callback: keras.callbacks.Callback, ended: tuple[int, dict] | None = None) -> dict[str, Any]:
    """Plain attributes without the constructor's arguments: those are this run's settings."""
    if isinstance(callback, keras.callbacks.History):
        epochs, history = list(getattr(callback, "epoch", [])), copy.deepcopy(callback.history)
        if ended is not None and ended[0] not in epochs:
            epochs.append(ended[0])
            for name, value in ended[1].items():
                history.setdefault(name, []).append(value)
        # Callbacks may put anything into the logs: what no checkpoint can hold is no reason to save none.
        return {"epoch": epochs, "history": {name: values for name, values in history.items() if _is_plain(values)}}
    settings = set(_ALWAYS_NEW)
    for kind in type(callback).__mro__:
        if "__init__" in vars(kind):
            settings.update(inspect.signature(kind.__init__).parameters)  # type: ignore[misc]
    return {name: value for name, value in vars(callback).items() if name not in settings and _is_plain(value)}


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind != "O"
    return isinstance(value, _SCALARS)


def _encode(value: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    if not _is_plain(value):
        raise TypeError(f"The state of {name} holds what no checkpoint can: {value!r:.100}")
    if isinstance(value, _SCALARS) and not isinstance(value, np.generic):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        arrays[name] = np.asarray(value)
        return {"array" if isinstance(value, np.ndarray) else "scalar": name}
    if isinstance(value, dict):
        return {"dict": {key: _encode(item, arrays, f"{name}/{key}") for key, item in value.items()}}
    items = [_encode(item, arrays, f"{name}/{index}") for index, item in enumerate(value)]
    return {"tuple": items} if isinstance(value, tuple) else items


def _decode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        return arrays[content].copy()
    if kind == "scalar":
        return arrays[content][()]
    if kind == "tuple":
        return tuple(_decode(item, arrays) for item in content)
    return {key: _decode(item, arrays) for key, item in content.items()}
