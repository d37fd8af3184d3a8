"""Sinusoidal positions: where a token stands, as a point that turns with the position.

PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).

Each pair (sin, cos) is an angle; moving on by k positions turns every angle by a fixed amount, whatever the position.
So PE(pos + k) is the same rotation of PE(pos) for every pos.
"""

import functools
from typing import Any

import numpy as np
from keras import ops

Tensor = Any

# A position whose value is known only inside the graph is written as coarse * RADIX + fine, and its encoding is the
# fine position's, turned by the coarse one's rotation: two small tables reach RADIX^2 positions.
RADIX = 1024


def positional_encoding(length: int, d_model: int) -> np.ndarray:
    """The sinusoids of positions 0 to `length - 1`.

    A function of position and width alone. Computed in float64, so every length is as exact as float32 allows.

    Args:
        length: Number of positions.
        d_model: Width, even.

    Returns:
        `(length, d_model)`, float32, sine and cosine interleaved as in the paper.

    Raises:
        ValueError: If `length` is negative or `d_model` is not a positive even number.

    Example:
        >>> positional_encoding(2, 4)[0]
        array([0., 1., 0., 1.], dtype=float32)

    Reference:
        Vaswani et al. (2017), section 3.5.
    """
    if not isinstance(length, (int, np.integer)) or length < 0:
        raise ValueError(f"`length` must be an integer, 0 or more. Received: length={length!r}")
    return _interleave(*_sines_and_cosines(np.arange(length), d_model)).astype("float32")


def position_rotation(offset: int, d_model: int) -> np.ndarray:
    """The matrix M with PE(pos + offset) = M PE(pos) for every `pos`: one small rotation per frequency.

    Args:
        offset: Number of positions k to move on by; may be negative.
        d_model: Width, even.

    Returns:
        `(d_model, d_model)`, float64, block-diagonal.

    Reference:
        Vaswani et al. (2017), section 3.5: "for any fixed offset k, PE(pos+k) can be represented as a linear function
        of PE(pos)".
    """
    sines, cosines = _sines_and_cosines(np.array([offset]), d_model)
    rotation = np.zeros((d_model, d_model))
    even = np.arange(0, d_model, 2)
    rotation[even, even], rotation[even, even + 1] = cosines[0], sines[0]
    rotation[even + 1, even], rotation[even + 1, even + 1] = -sines[0], cosines[0]
    return rotation


def encode_positions(start: int | Tensor, length: int | Tensor, d_model: int) -> Tensor:
    """The sinusoids of positions `start` to `start + length - 1`, also where either is known only in the graph.

    Args:
        start: First position, a Python integer or a scalar integer tensor.
        length: Number of positions, a Python integer or a scalar integer tensor.
        d_model: Width, even.

    Returns:
        `(length, d_model)`, float32, exact to about 1e-7 for positions below 2^20.

    Raises:
        ValueError: If `start` is negative, as far as it is known outside the graph.
    """
    if isinstance(start, int) and start < 0:
        raise ValueError(f"`start` must be 0 or more. Received: start={start}")
    if isinstance(start, int) and isinstance(length, int):
        return ops.convert_to_tensor(_table(_round_up(start + length), d_model)[start : start + length])
    positions = ops.arange(length, dtype="int32") + ops.cast(start, "int32")
    fine_sines, fine_cosines = _lookup(np.arange(RADIX), positions % RADIX, d_model)
    coarse_sines, coarse_cosines = _lookup(np.arange(RADIX) * RADIX, positions // RADIX, d_model)
    sines = fine_sines * coarse_cosines + fine_cosines * coarse_sines  # sin(a + b)
    cosines = fine_cosines * coarse_cosines - fine_sines * coarse_sines  # cos(a + b)
    return ops.reshape(ops.stack([sines, cosines], axis=-1), (-1, d_model))  # interleave


def _sines_and_cosines(positions: np.ndarray, d_model: int) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(d_model, (int, np.integer)) or d_model <= 0 or d_model % 2:
        raise ValueError(f"`d_model` must be a positive even integer. Received: d_model={d_model!r}")
    frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # (d_model / 2,)
    angles = positions[:, None] * frequencies[None, :]
    return np.sin(angles), np.cos(angles)


def _interleave(sines: np.ndarray, cosines: np.ndarray) -> np.ndarray:
    return np.stack([sines, cosines], axis=-1).reshape(len(sines), 2 * sines.shape[1])


@functools.lru_cache(maxsize=16)
def _table(length: int, d_model: int) -> np.ndarray:
    table = positional_encoding(length, d_model)
    table.setflags(write=False)
    return table


def _round_up(length: int) -> int:
    """The next power of two: the table grows on demand, and not once per length."""
    return 1 << max(length - 1, 255).bit_length()


def _lookup(table_positions: np.ndarray, index: Tensor, d_model: int) -> tuple[Tensor, Tensor]:
    tables = (table.astype("float32") for table in _sines_and_cosines(table_positions, d_model))
    sines, cosines = (ops.take(ops.convert_to_tensor(table), index, axis=0) for table in tables)
    return sines, cosines
