"""Attention as pixels for TensorBoard's cards: a cell for each weight, one width, a bounded size."""

import numpy as np
import pytest
import tensorflow as tf
from matplotlib import colormaps

from keras_transformer.visualization.attention_image import attention_image
from keras_transformer.visualization.attention_maps import AttentionMaps


def test_a_picture_has_a_cell_for_each_weight():
    """One-hot weights: a dark cell each, of 17 pixels a side within the lines of a grid of 18, in every head."""
    pieces = ["▁um", "▁dois", "▁três"]
    weights = np.stack([np.eye(3), np.eye(3)[::-1]])[None].astype("float32")
    picture = attention_image(AttentionMaps(pieces, pieces, pieces, *[weights] * 3), "encoder", 0, [0, 1])
    below_the_scale = picture[2 * 18 + 8 :]
    blue = np.all(below_the_scale == np.round(255 * np.array(colormaps["Blues"](1.0)[:3])), axis=-1)
    left, top = np.flatnonzero(blue.any(axis=0))[0], np.flatnonzero(blue.any(axis=1))[0]
    cells = blue[top - 1 :, left - 1 :]
    heads = [cells[:54, :54], cells[:54, 54 + 8 :][:, :54]]
    for head, expected in zip(heads, weights[0], strict=True):
        lines = np.ones((18, 18), bool)
        lines[0] = lines[:, 0] = False
        np.testing.assert_array_equal(head, np.kron(expected > 0, lines))


@pytest.mark.parametrize("num_heads", [1, 4, 8, 16])
@pytest.mark.parametrize("pieces", [1, 8, 14, 24, 40, 300])
def test_pictures_are_as_wide_as_tensorboards_card_or_bounded(pieces, num_heads):
    """350 pixels; long sentences are seen at their own size."""
    words = [f"▁palavra{index}" for index in range(pieces)]
    weights = np.full((1, 16, pieces, pieces), 1 / pieces, "float32")
    attention = AttentionMaps(words, words, words, weights, weights, weights)
    picture = attention_image(attention, "cross", 0, range(num_heads))
    height, width, _ = picture.shape
    assert height * width <= 6e6
    assert len(tf.io.encode_png(picture).numpy()) < 500_000
    assert width == 350 or pieces > 24


def test_of_a_long_sentence_the_first_pieces_are_shown_and_it_is_said():
    """Below a line more of words the picture is that of 40 pieces."""
    words = [f"{index}" for index in range(60)]
    weights = np.random.default_rng(1).random((1, 1, 60, 60), "float32")
    long = AttentionMaps(words, words, words, weights, weights, weights)
    short = AttentionMaps(words[:40], words[:40], words[:40], *[weights[:, :, :40, :40]] * 3)
    ours, theirs = (attention_image(each, "cross", 0, [0]) for each in (long, short))
    assert ours.shape[0] == theirs.shape[0] + 18
    np.testing.assert_array_equal(ours[-(theirs.shape[0] - 50) :], theirs[50:])


def test_strange_pieces_can_be_drawn():
    words = ["", "\U0010fffd", "<0xE2>", "$x_1$", "ﷺ" * 20, "مرحبا"]
    weights = np.full((1, 1, 6, 6), np.nan, "float32")
    picture = attention_image(AttentionMaps(words, words, words, *[weights] * 3), "decoder", 0, [0])
    assert picture.size <= 3 * 6e6
