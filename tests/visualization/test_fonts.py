"""Which characters can be drawn, and that a picture says which cannot."""

import unicodedata

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.visualization.attention_maps import AttentionMaps
from keras_transformer.visualization.fonts import Fonts

NOBODYS = "\U0010fffd"  # private use: in no font


def heat_map(pieces):
    weights = np.full((1, 1, len(pieces), len(pieces)), 1 / len(pieces), "float32")
    return kt.plot_attention(AttentionMaps(pieces, pieces, pieces, weights, weights, weights), "encoder")


def labels(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


@pytest.mark.parametrize("text", ["▁São João não", "Ελλάδα", "Привет", "שלום", "مرحبا", "Việt", "<0xE2>"])
def test_accents_other_alphabets_and_right_to_left_need_no_other_font(text):
    assert Fonts([text]).families == ["DejaVu Sans"]
    assert Fonts([text]).missing == ""
    assert Fonts([text]).drawable(text) == text


def test_a_character_of_no_font_is_a_box_and_the_picture_says_so(tmp_path):
    figure = heat_map(["▁ok", f"a{NOBODYS}b"])
    assert labels(figure) == ["▁ok", "a□b"]
    assert " ".join(figure.get_supxlabel().split()).startswith("□: no font on this machine has U+10FFFD; install one")
    figure.savefig(tmp_path / "attention.png")  # no warning of Matplotlib's


def test_the_note_fits_a_small_picture():
    figure = heat_map([NOBODYS])
    figure.draw_without_rendering()
    box = figure._supxlabel.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_a_picture_without_boxes_says_nothing():
    assert heat_map(["▁São", "Ελλάδα"]).get_supxlabel() == ""


def test_japanese_is_drawn_or_said_to_be_missing(tmp_path):
    """As the machine's fonts have it; either way without a warning."""
    figure = heat_map(["▁日本"])
    figure.savefig(tmp_path / "attention.png")
    if Fonts(["日本"]).missing:
        assert labels(figure) == ["▁□□"]
        assert "U+65E5, U+672C" in " ".join(figure.get_supxlabel().split())
    else:
        assert labels(figure) == ["▁日本"]
        assert figure.get_supxlabel() == ""


def test_many_missing_characters_are_counted():
    private = "".join(chr(0x10FFF0 + number) for number in range(7))
    assert all(unicodedata.category(character) == "Co" for character in private)
    assert "U+10FFF0, U+10FFF1, U+10FFF2, U+10FFF3 and 3 more" in Fonts([private]).note()


def test_dollars_are_no_mathematics(tmp_path):
    figure = heat_map(["$x_1$", "$$", "\\frac"])
    figure.savefig(tmp_path / "attention.png")
    assert labels(figure) == ["$x_1$", "$$", "\\frac"]
