"""Masks: who may be attended to.

One polarity and one form everywhere: boolean, `True` = may be attended to, rank 3 `(B|1, T|1, S)`, or rank 4
with heads `(B|1, N|1, T|1, S)`. Keys are hidden, never queries.
"""

from typing import Any

from keras import backend, ops

Tensor = Any  # a tensor of whichever backend Keras runs on


def padding_mask(token_ids: Tensor, pad_token_id: int = 0) -> Tensor:
    """Marks the keys that are real tokens.

    Args:
        token_ids: `(B, S)`, integer.
        pad_token_id: The id that fills a row up to the batch's length.

    Returns:
        `(B, 1, S)`, bool, `True` where the token is not padding.

    Raises:
        ValueError: If `token_ids` is not of rank 2.

    Example:
        >>> padding_mask([[5, 7, 0]])
        [[[True, True, False]]]
    """
    token_ids = ops.convert_to_tensor(token_ids)
    if len(token_ids.shape) != 2:
        raise ValueError(f"`token_ids` must have rank 2, (B, S). Received: shape={tuple(token_ids.shape)}")
    return ops.expand_dims(ops.not_equal(token_ids, pad_token_id), 1)  # (B, S) -> (B, 1, S)


def look_ahead_mask(length: int | Tensor) -> Tensor:
    """Hides the future: query `t` may attend to keys `0..t`.

    Args:
        length: The target's length `T`, a Python integer or a scalar integer tensor.

    Returns:
        `(1, T, T)`, bool, `True` on and below the diagonal.

    Example:
        >>> look_ahead_mask(3)
        [[[True, False, False], [True, True, False], [True, True, True]]]

    Reference:
        Vaswani et al. (2017), section 3.2.3, "masking out (setting to -inf) all values ... which correspond to
        illegal connections".
    """
    positions = ops.arange(length, dtype="int32")
    return ops.expand_dims(ops.expand_dims(positions, 1) >= ops.expand_dims(positions, 0), 0)


def combine_masks(*masks: Tensor | None) -> Tensor | None:
    """The keys that every mask allows: logical and, skipping `None`.

    Args:
        *masks: Each `None`, `(B|1, T|1, S)` or `(B|1, N|1, T|1, S)`, bool. Where ranks differ, rank 3 holds for
            every head.

    Returns:
        The combined mask, bool, broadcast as far as the masks demand; `None` if every mask is.

    Raises:
        ValueError: If a mask is of rank 2 or below: `(B, S)` beside `(1, T, T)` would broadcast to a wrong mask in
            silence whenever B = T. If last sizes differ.
        TypeError: If a mask is not boolean.

    Example:
        >>> combine_masks(padding_mask([[5, 0]]), look_ahead_mask(2))
        [[[True, False], [True, False]]]
    """
    given = [check_mask(mask) for mask in masks if mask is not None]
    if not given:
        return None
    if any(len(mask.shape) == 4 for mask in given):
        given = [with_heads(mask) for mask in given]
    if len({mask.shape[-1] for mask in given} - {None}) > 1:
        raise ValueError(f"Masks must have one last size S. Received: shapes={[tuple(mask.shape) for mask in given]}")
    combined = given[0]
    for mask in given[1:]:
        combined = ops.logical_and(combined, mask)
    return combined


def key_mask(mask: Tensor | None) -> Tensor | None:
    """An implicit Keras mask, `(B, S)`, in the one form: `(B, 1, S)`; `None` stays `None`."""
    return None if mask is None else ops.expand_dims(ops.cast(mask, "bool"), 1)


def check_mask(mask: Tensor) -> Tensor:
    """Returns `mask` as a tensor, or raises if it is not a boolean mask of rank 3 or 4."""
    mask = ops.convert_to_tensor(mask)
    dtype = backend.standardize_dtype(mask.dtype)
    if dtype != "bool":
        raise TypeError(
            "A mask must be boolean, True = may be attended to (cast it: `mask.astype(bool)`). "
            f"Received: dtype={dtype}, shape={tuple(mask.shape)}"
        )
    if len(mask.shape) not in (3, 4):
        raise ValueError(
            "A mask must have rank 3, (B|1, T|1, S), or rank 4 with heads. For a (B, S) padding mask call "
            "`padding_mask(token_ids)` or add the axis: `mask[:, None, :]`; for a (T, S) mask: `mask[None, :, :]`. "
            f"Received: shape={tuple(mask.shape)}"
        )
    return mask


def with_heads(mask: Tensor) -> Tensor:
    """`(B, T, S)` -> `(B, 1, T, S)`; a mask that has its head axis stays as it is."""
    return ops.expand_dims(mask, 1) if len(mask.shape) == 3 else mask
