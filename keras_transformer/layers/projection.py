"""The projections around attention: a sequence to every head's queries, keys or values, and the heads back to it."""

from typing import Any

import keras
from keras import ops

Tensor = Any


def split_into_heads(sequence: Tensor, *projections: keras.layers.EinsumDense) -> tuple[Tensor, ...]:
    """Applies several projections to one sequence in one matrix product: x [W_1 W_2 ...] = [x W_1, x W_2, ...].

    Each projection keeps weights of its own; they are joined here. The product is that of two matrices, all positions
    of all rows below each other: of a rank 3 product, the kernel's gradient would be made for each row and summed.

    Args:
        sequence: `(B, T, D)`.
        *projections: Built layers of the equation "btd,dnh->btnh".

    Returns:
        One `(B, N, T, H)` a projection.
    """
    if any(projection.quantization_mode for projection in projections):  # such a kernel means nothing by itself
        return tuple(ops.swapaxes(projection(sequence), 1, 2) for projection in projections)
    dtype, width, length = projections[0].compute_dtype, sequence.shape[-1], ops.shape(sequence)[1]
    kernels = [ops.reshape(ops.cast(projection.kernel, dtype), (width, -1)) for projection in projections]
    rows = ops.reshape(ops.cast(sequence, dtype), (-1, width))  # (B, T, D) -> (B * T, D)
    projected = ops.matmul(rows, _join(kernels))  # (B * T, sum of N * H)
    if projections[0].bias is not None:
        biases = [ops.reshape(ops.cast(projection.bias, dtype), (-1,)) for projection in projections]
        projected = projected + _join(biases)
    heads, ends = [], [0]
    for projection in projections:
        ends.append(ends[-1] + projection.kernel.shape[1] * projection.kernel.shape[2])
    parts = ops.split(projected, ends[1:-1], axis=-1) if len(projections) > 1 else [projected]
    for part, projection in zip(parts, projections, strict=True):
        part = ops.reshape(part, (-1, length, *projection.kernel.shape[1:]))  # (B, T, N, H)
        heads.append(ops.swapaxes(part, 1, 2))
    return tuple(heads)


def merge_heads(heads: Tensor, projection: keras.layers.EinsumDense) -> Tensor:
    """Concatenates the heads' outputs and projects them, also as a product of two matrices.

    Args:
        heads: `(B, N, T, H)`.
        projection: A built layer of the equation "btnh,nhd->btd".

    Returns:
        `(B, T, D)`.
    """
    merged = ops.swapaxes(heads, 1, 2)  # (B, N, T, H) -> (B, T, N, H)
    if projection.quantization_mode:
        return projection(merged)
    dtype, width, length = projection.compute_dtype, heads.shape[1] * heads.shape[3], ops.shape(merged)[1]
    kernel = ops.reshape(ops.cast(projection.kernel, dtype), (width, -1))
    output = ops.matmul(ops.reshape(ops.cast(merged, dtype), (-1, width)), kernel)
    if projection.bias is not None:
        output = output + ops.cast(projection.bias, dtype)
    return ops.reshape(output, (-1, length, kernel.shape[-1]))


def _join(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, axis=-1)
