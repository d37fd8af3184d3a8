"""Attention as a picture: what is on it, and where."""

import itertools
import sys

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

import keras_transformer as kt
from keras_transformer.visualization.attention_maps import AttentionMaps

SOURCE = ["▁São", "▁João", "▁não", "▁dorme", "</s>"]
INPUTS = ["<s>", "▁Saint", "▁John"]
TARGET = ["▁Saint", "▁John", "</s>"]
LABELS = {"encoder": (SOURCE, SOURCE), "decoder": (TARGET, INPUTS), "cross": (TARGET, SOURCE)}


@pytest.fixture
def attention():
    """Two layers of three heads; every weight is another one."""
    rng = np.random.default_rng(1)

    def weights(queries, keys):
        scores = np.exp(rng.normal(0, 2, (2, 3, len(queries), len(keys))))
        return (scores / scores.sum(axis=-1, keepdims=True)).astype("float32")

    maps = {kind: weights(*labels) for kind, labels in LABELS.items()}
    return AttentionMaps(SOURCE, INPUTS, TARGET, **maps)


def panels(figure):
    """The axes that show a head, without the colour bar."""
    return [axis for axis in figure.axes if axis.get_title()]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_a_panel_for_each_head_with_its_weights_and_pieces(attention, kind, layer):
    figure = kt.plot_attention(attention, kind, layer=layer)
    assert isinstance(figure, Figure)
    axes = panels(figure)
    assert [axis.get_title() for axis in axes] == ["head 1", "head 2", "head 3"]
    rows, columns = LABELS[kind]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == rows
    for head, axis in enumerate(axes):
        assert [label.get_text() for label in axis.get_xticklabels()] == columns
        (image,) = axis.images
        np.testing.assert_array_equal(image.get_array(), getattr(attention, kind)[layer, head])
        assert image.get_clim() == (0, 1)  # the same colour is the same weight in every picture
        assert axis.get_xticks().tolist() == list(range(len(columns)))
        assert axis.get_yticks().tolist() == list(range(len(rows)))


def test_the_title_says_which_layer(attention):
    assert kt.plot_attention(attention).get_suptitle() == "cross-attention, layer 2 of 2"
    assert kt.plot_attention(attention, "decoder", layer=0).get_suptitle() == "decoder self-attention, layer 1 of 2"
    assert kt.plot_attention(attention, "encoder", layer=-2).get_suptitle() == "encoder self-attention, layer 1 of 2"


def test_chosen_heads(attention):
    axes = panels(kt.plot_attention(attention, heads=[2, 0]))
    assert [axis.get_title() for axis in axes] == ["head 3", "head 1"]
    np.testing.assert_array_equal(axes[0].images[0].get_array(), attention.cross[1, 2])


def test_one_head(attention):
    (axis,) = panels(kt.plot_attention(attention, heads=1))
    assert axis.get_title() == "head 2"
    np.testing.assert_array_equal(axis.images[0].get_array(), attention.cross[1, 1])


def test_all_layers_are_rows_and_all_heads_columns(attention):
    figure = kt.plot_attention(attention, "encoder", layer=None)
    axes = panels(figure)
    assert [axis.get_title() for axis in axes] == [f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2, 3)]
    for number, axis in enumerate(axes):
        np.testing.assert_array_equal(axis.images[0].get_array(), attention.encoder[number // 3, number % 3])
    assert figure.get_suptitle() == "encoder self-attention, all 2 layers"
    figure.draw_without_rendering()
    boxes = [axis.get_window_extent() for axis in axes]
    assert boxes[0].x0 == pytest.approx(boxes[3].x0)
    assert boxes[0].y0 == pytest.approx(boxes[2].y0)
    assert boxes[0].y0 > boxes[3].y1  # the first layer is above


def test_where_pieces_cannot_be_read_the_picture_says_how_many_there_are(attention):
    words = [f"▁palavra{index}" for index in range(40)]
    weights = np.full((6, 8, 40, 40), 1 / 40, "float32")
    figure = kt.plot_attention(AttentionMaps(words, words, words, weights, weights, weights), layer=None)
    assert figure.get_size_inches()[0] < 20
    assert not any(axis.get_xticklabels() for axis in panels(figure))
    assert figure.get_supxlabel().startswith("40 pieces look at 40: too small to be named here")


def test_both_sides_say_what_they_are_once_each(attention):
    """A row asks and a column answers; names stand where the pieces do."""
    names = {"encoder": ("query: source", "key: source"), "decoder": ("query: target", "key: decoder input")}
    for kind, (row, column) in {**names, "cross": ("query: target", "key: source")}.items():
        axes = panels(kt.plot_attention(attention, kind, layer=None))
        assert [axis.get_ylabel() for axis in axes] == [row, "", ""] * 2
        assert [axis.get_xlabel() for axis in axes] == [""] * 3 + [column] * 3


def test_the_rows_are_named_once(attention):
    shown = [axis.yaxis.get_tick_params()["labelleft"] for axis in panels(kt.plot_attention(attention))]
    assert shown == [True, False, False]


def test_a_saved_picture_shows_the_weights(attention, tmp_path):
    one_hot = np.zeros_like(attention.cross)
    one_hot[:, :, [0, 1, 2], [0, 3, 4]] = 1
    for name, weights in (("nothing", np.zeros_like(one_hot)), ("diagonal", one_hot)):
        kt.plot_attention(attention._replace(cross=weights)).savefig(tmp_path / f"{name}.png")
    pictures = {name: matplotlib.image.imread(tmp_path / f"{name}.png") for name in ("nothing", "diagonal")}
    blue = {name: _dark_blue(picture) for name, picture in pictures.items()}
    assert pictures["diagonal"].std() > 0.05
    # Nine of 45 cells have the darkest colour, which elsewhere is on the colour bar alone.
    assert blue["diagonal"] > blue["nothing"] + 1000


def _dark_blue(picture):
    red, green, blue = picture[..., 0], picture[..., 1], picture[..., 2]
    return int(np.sum((red < 0.1) & (green < 0.3) & (blue > 0.3)))


@pytest.mark.parametrize("pieces", [1, 60])
def test_short_and_long_sentences_fit_their_picture(pieces, tmp_path):
    words = [f"▁palavra{index}" for index in range(pieces)]
    weights = np.full((1, 4, pieces, pieces), 1 / pieces, "float32")
    figure = kt.plot_attention(AttentionMaps(words, words, words, weights, weights, weights))
    figure.savefig(tmp_path / "attention.png", dpi=60)  # Matplotlib warns where the layout fails
    width, height = figure.get_size_inches()
    assert width < 20  # inches: a screen or a page
    for axis in panels(figure):
        box = axis.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        assert box.height / pieces > 0.12  # inches a row: room for a line of small text
        assert 0 < box.x0 < box.x1 < width
        assert 0 < box.y0 < box.y1 < height


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "self"}, r"`kind` must be one of encoder, decoder, cross. Received: kind='self'"),
        ({"layer": 2}, r"Received: layer=2"),
        ({"layer": -3}, r"Received: layer=-3"),
        ({"heads": [0, 3]}, r"`heads` must be 1 to 3 of the heads 0 to 2. Received: heads=\[0, 3\]"),
        ({"heads": [-1]}, r"`heads` must be 1 to 3 of the heads 0 to 2. Received: heads=\[-1\]"),
        ({"heads": []}, r"`heads` must be 1 to 3 of the heads 0 to 2. Received: heads=\[\]"),
    ],
)
def test_impossible_arguments_are_named(attention, options, message):
    with pytest.raises(ValueError, match=message):
        kt.plot_attention(attention, **options)


def test_a_mask_as_a_picture():
    """Rows are queries: the first sees the first key alone, the last sees all."""
    figure = kt.plot_mask(kt.look_ahead_mask(4), title="look-ahead")
    (axis,) = figure.axes
    np.testing.assert_array_equal(axis.images[0].get_array(), [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "1", "2", "3"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("key", "query")
    assert figure.get_suptitle() == "look-ahead"


def test_weights_as_a_picture_have_labels_and_a_scale():
    figure = kt.plot_mask([[0.25, 0.75]], ["a"], ["b", "c"])
    axis = figure.axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["b", "c"]
    assert len(figure.axes) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.ones((2, 3, 4), bool)], r"`mask` must be \(T, S\) or \(1, T, S\). Received: shape=\(2, 3, 4\)"),
        ([np.ones(3, bool)], r"Received: shape=\(3,\)"),
        ([np.ones((0, 3), bool)], r"Received: shape=\(0, 3\)"),
        ([[[0.5, 1.5]]], r"`mask` must be boolean, or weights from 0 to 1.*Received: values from 0.5 to 1.5"),
        ([[[0.5, float("nan")]]], r"Received: values from nan to nan"),
        ([np.ones((2, 3), bool), ["a"]], r"`query_labels` must be 2, one for each. Received: 1"),
        ([np.ones((2, 3), bool), None, ["a"]], r"`key_labels` must be 3, one for each. Received: 1"),
    ],
)
def test_what_is_no_mask_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        kt.plot_mask(*arguments)


@pytest.mark.parametrize(
    "options", [{"heads": 0.5}, {"heads": [True]}, {"heads": "1"}, {"layer": 0.5}, {"layer": True}]
)
def test_what_is_no_integer_is_named(attention, options):
    (name,) = options
    with pytest.raises(TypeError, match=f"`{name}` must be one integer or several. Received: {name}="):
        kt.plot_attention(attention, **options)


@pytest.mark.parametrize("weight", [float("nan"), -0.5, 2.0])
def test_what_is_no_weight_is_not_drawn(attention, weight):
    attention.cross[0, 1, 2, 3] = weight
    with pytest.raises(ValueError, match=rf"`attention.cross` must be weights from 0 to 1.*{weight} in \[0, 1, 2, 3\]"):
        kt.plot_attention(attention)


def test_long_pieces_and_odd_white_space_are_one_short_line(tmp_path):
    pieces = ["a" * 2000, "b\tc\nd\r\x85e"]
    figure = kt.plot_mask(np.eye(2, dtype=bool), pieces, pieces)
    figure.savefig(tmp_path / "mask.png")  # Matplotlib warns of what it cannot draw
    assert max(figure.get_size_inches()) < 12
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a" * 39 + "…", "b c d  e"]


def test_names_of_panels_do_not_meet():
    """One piece, and all heads of all layers: the panels are as wide as their names."""
    weights = np.ones((2, 8, 1, 1), "float32")
    figure = kt.plot_attention(AttentionMaps(["</s>"], ["<s>"], ["</s>"], weights, weights, weights), layer=None)
    figure.draw_without_rendering()
    boxes = [axis.title.get_window_extent() for axis in panels(figure)[:8]]
    assert all(before.x1 < after.x0 for before, after in itertools.pairwise(boxes))


def test_a_short_name(attention):
    assert repr(attention) == "AttentionMaps(5 source pieces, 3 target pieces, 2 layers of 3 heads)"


def test_no_window_and_no_global_figure(attention):
    """Callbacks draw thousands of pictures: none may stay in pyplot's list."""
    kt.plot_attention(attention)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []
