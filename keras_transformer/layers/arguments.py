"""Checks that every layer's constructor makes, and the copy of an initializer that every sublayer gets."""

import numbers
import zlib
from typing import Any

import keras


def check_positive(name: str, value: Any) -> int:
    """Returns `value`, Python's or NumPy's, if it is a positive integer, else raises a `ValueError` that names it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return int(value)


def check_probability(name: str, value: Any) -> float:
    """Returns `value` if it is a probability below 1, else raises a `ValueError` that names the argument."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ValueError(f"`{name}` must be a number, 0 <= {name} < 1. Received: {name}={value!r}")
    return value


def head_size(size: int | None, d_model: int, num_heads: int) -> int:
    """A head's size as given, or its share of the width."""
    if size is None and d_model % num_heads:
        raise ValueError(
            "`d_model` must be divisible by `num_heads`, or `key_dim` and `value_dim` be given. "
            f"Received: d_model={d_model}, num_heads={num_heads}"
        )
    return d_model // num_heads if size is None else size


def clone_initializer(initializer: Any) -> Any:
    """A copy for one sublayer: an initializer object shared by two layers would give both the same values.

    With a seed the copies draw alike, as in Keras. A plain function, or what Keras makes of an array, draws nothing by
    itself and is returned as it is.
    """
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer


def derive_seed(seed: int | None, name: str) -> int | None:
    """A seed of its own for the sublayer `name`: with one seed, two dropouts of one shape would drop alike."""
    return None if seed is None else zlib.crc32(f"{seed}/{name}".encode())
