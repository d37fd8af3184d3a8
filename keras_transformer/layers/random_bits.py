"""Random bits as a function of numbers: a hash of 32-bit integers, the same on every backend and under XLA."""

from typing import Any

import numpy as np
from keras import ops

Tensor = Any


def keys_of(seed: Tensor, call: Tensor) -> tuple[Tensor, Tensor]:
    """Two keys of 32 bits from a seed and a call's number, uint32: neighbouring seeds and calls get unrelated ones."""
    seed = mix(seed, np.uint32(0x9E3779B9), np.uint32(0x85EBCA6B))
    key = mix(call, seed, np.uint32(0xC2B2AE35))
    return key, mix(key, seed, np.uint32(0x27D4EB2F))


def mix(numbers: Tensor, key: Tensor, second_key: Tensor) -> Tensor:
    """A bijection of the 32-bit integers, another one for each pair of keys, after which no pattern is left.

    Two keys, one before each multiplication: with one alone, two calls' numbers would be one sequence, shifted.

    Args:
        numbers, key, second_key: uint32, of shapes that broadcast.
    """
    mixed = ops.multiply(_fold(ops.bitwise_xor(numbers, key), 16), np.uint32(0x7FEB352D))
    mixed = ops.multiply(ops.add(_fold(mixed, 15), second_key), np.uint32(0x846CA68B))
    return _fold(mixed, 16)


def _fold(numbers: Tensor, bits: int) -> Tensor:
    return ops.bitwise_xor(numbers, ops.bitwise_right_shift(numbers, np.uint32(bits)))
