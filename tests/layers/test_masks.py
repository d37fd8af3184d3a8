"""Masks, written out by hand: True = may be attended to."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import combine_masks, look_ahead_mask, padding_mask
from keras_transformer.layers.masks import key_mask


def test_padding_mask_marks_the_real_tokens():
    mask = padding_mask(np.array([[5, 7, 0, 0], [9, 0, 3, 0]]))

    assert mask.dtype == "bool"
    np.testing.assert_array_equal(mask, [[[True, True, False, False]], [[True, False, True, False]]])


def test_padding_mask_takes_another_pad_id():
    np.testing.assert_array_equal(padding_mask([[0, 4, 9]], pad_token_id=9), [[[True, True, False]]])


def test_padding_mask_of_anything_but_rank_2_raises():
    with pytest.raises(ValueError, match=r"`token_ids` must have rank 2.*Received: shape=\(3,\)"):
        padding_mask([5, 7, 0])


def test_look_ahead_mask_shows_the_past_and_the_present():
    mask = look_ahead_mask(4)

    assert mask.dtype == "bool"
    np.testing.assert_array_equal(
        mask,
        [
            [
                [True, False, False, False],
                [True, True, False, False],
                [True, True, True, False],
                [True, True, True, True],
            ]
        ],
    )


def test_look_ahead_mask_of_a_length_known_only_in_the_graph():
    mask_of = tf.function(look_ahead_mask, input_signature=[tf.TensorSpec((), "int32")])

    np.testing.assert_array_equal(mask_of(1), [[[True]]])
    np.testing.assert_array_equal(mask_of(2), [[[True, False], [True, True]]])


def test_combining_padding_and_look_ahead_allows_what_both_allow():
    combined = combine_masks(padding_mask([[5, 0, 7], [0, 5, 7]]), look_ahead_mask(3))

    np.testing.assert_array_equal(
        combined,
        [
            [[True, False, False], [True, False, False], [True, False, True]],
            [[False, False, False], [False, True, False], [False, True, True]],
        ],
    )


def test_combining_skips_none():
    mask = padding_mask([[5, 0]])

    assert combine_masks() is None
    assert combine_masks(None, None) is None
    np.testing.assert_array_equal(combine_masks(None, mask, None), mask)


def test_combining_rank_3_with_rank_4_lets_rank_3_hold_for_every_head():
    # Batch of 3 and 2 heads: aligned from the right without care, the batch would land on the heads.
    hidden_by_padding = np.array([[[True, True, False]], [[True, False, True]], [[False, True, True]]])
    per_head = np.array([[[[True, False, True]], [[True, True, True]]]])

    combined = combine_masks(hidden_by_padding, per_head)

    np.testing.assert_array_equal(
        combined,
        [
            [[[True, False, False]], [[True, True, False]]],
            [[[True, False, True]], [[True, False, True]]],
            [[[False, False, True]], [[False, True, True]]],
        ],
    )
    np.testing.assert_array_equal(combine_masks(per_head, hidden_by_padding), combined)


def test_combining_a_rank_2_mask_raises_and_says_what_to_call():
    # B = T = 3: NumPy's rules would let row b of the padding mask hide keys of query b.
    with pytest.raises(ValueError, match=r"padding_mask\(token_ids\).*Received: shape=\(3, 3\)"):
        combine_masks(np.ones((3, 3), bool), look_ahead_mask(3))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_combining_a_mask_that_is_not_boolean_raises(dtype):
    with pytest.raises(TypeError, match=rf"must be boolean.*Received: dtype={dtype}"):
        combine_masks(look_ahead_mask(3), np.ones((1, 3, 3), dtype))


def test_an_implicit_mask_becomes_a_mask_of_keys():
    assert key_mask(None) is None
    np.testing.assert_array_equal(key_mask(np.array([[True, False]])), [[[True, False]]])


def test_combining_a_mask_that_hides_queries_raises():
    # (2, 5, 1) beside (2, 1, 5) would broadcast to (2, 5, 5), with rows that see nothing.
    with pytest.raises(ValueError, match="one last size S"):
        combine_masks(np.ones((2, 5, 1), bool), np.ones((2, 1, 5), bool))
