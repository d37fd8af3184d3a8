"""Positions, schedule, history and the model itself as pictures; what a notebook shows."""

import keras
import numpy as np
import pytest

import keras_transformer as kt

HISTORY = {"loss": [3.0, 2.0], "val_loss": [3.5, 2.5], "token_accuracy": [0.1, 0.3]}


def test_positions_are_drawn_as_they_are():
    figure = kt.plot_positional_encoding(30, 16)
    heat, waves = figure.axes[:2]
    np.testing.assert_array_equal(heat.images[0].get_array(), kt.positional_encoding(30, 16))
    assert heat.images[0].get_clim() == (-1, 1)
    for line in waves.lines:
        dimension = int(line.get_label().removeprefix("dimension "))
        np.testing.assert_array_equal(line.get_ydata(), kt.positional_encoding(30, 16)[:, dimension])
    assert waves.lines[0].get_label() == "dimension 0"


@pytest.mark.parametrize(("length", "d_model"), [(1, 2), (3, 4), (600, 512)])
def test_any_size_of_positions_can_be_drawn(length, d_model, tmp_path):
    kt.plot_positional_encoding(length, d_model).savefig(tmp_path / "positions.png")


@pytest.mark.parametrize(("arguments", "name"), [((0, 4), "length"), ((-1, 4), "length"), ((5, 3), "d_model")])
def test_impossible_sizes_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        kt.plot_positional_encoding(*arguments)


def test_a_schedule_is_highest_at_the_end_of_its_warm_up():
    figure = kt.plot_schedule(kt.WarmupSchedule(512, warmup_steps=400), 1000)
    (line,) = figure.axes[0].lines
    updates, rates = line.get_data()
    assert updates[0] == 1
    assert updates[-1] == 1000
    assert updates[np.argmax(rates)] == 400
    assert rates[399] == pytest.approx(512**-0.5 * 400**-0.5)  # the paper's equation 3
    assert rates[999] == pytest.approx(512**-0.5 * 1000**-0.5)


def test_several_schedules_have_their_names():
    figure = kt.plot_schedule({"warm-up": kt.WarmupSchedule(8, 10), "constant": lambda step: 0.01}, 50)
    axis = figure.axes[0]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["warm-up", "constant"]
    np.testing.assert_allclose(axis.lines[1].get_ydata(), 0.01)


@pytest.mark.parametrize("arguments", [({},), (kt.WarmupSchedule(8), 0), (kt.WarmupSchedule(8), -5)])
def test_no_schedule_or_no_update_is_refused(arguments):
    with pytest.raises(ValueError, match=r"`(schedules|num_updates)` must"):
        kt.plot_schedule(*arguments)


def curves(figure):
    return {
        axis.get_title(): {line.get_label(): line.get_ydata().tolist() for line in axis.lines} for axis in figure.axes
    }


def test_a_history_has_a_panel_for_each_metric():
    expected = {
        "loss": {"training": [3.0, 2.0], "validation": [3.5, 2.5]},
        "token accuracy": {"training": [0.1, 0.3]},
    }
    assert curves(kt.plot_history(HISTORY)) == expected
    history = keras.callbacks.History()
    history.history = HISTORY
    assert curves(kt.plot_history(history)) == expected
    assert kt.plot_history(HISTORY).axes[0].lines[0].get_xdata().tolist() == [1, 2]


def test_runs_are_compared_in_one_panel():
    figure = kt.plot_history({"a": HISTORY, "b": {"loss": [1.0]}}, ["loss"])
    assert curves(figure) == {
        "loss": {"a, training": [3.0, 2.0], "a, validation": [3.5, 2.5], "b, training": [1.0]},
    }


def test_what_fit_returned_is_drawn(tmp_path):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((4, 1)), np.ones((4, 1)), epochs=2, verbose=0)
    kt.plot_history(history).savefig(tmp_path / "history.png")


def test_names_are_shown_as_they_are(tmp_path):
    """No mathematics, no name left out for how it begins, numbers as names."""
    figure = kt.plot_history({"$a_{$": {"$loss$": [1.0]}, "_b": {"$loss$": [2.0]}, 256: {}}, "$loss$")
    figure.savefig(tmp_path / "history.png")
    axis = figure.axes[0]
    assert axis.get_title() == "$loss$"
    names = [text.get_text().strip() for text in axis.get_legend().get_texts()]
    assert names == ["$a_{$, training", "_b, training"]
    kt.plot_schedule({"$\\frac$": kt.WarmupSchedule(8), 512: kt.WarmupSchedule(512)}).savefig(tmp_path / "rates.png")
    kt.plot_mask(np.eye(3), title="costs $5_{ to $6^").savefig(tmp_path / "mask.png")


@pytest.mark.parametrize(("epochs", "ticks"), [(1, [1]), (3, [1, 2, 3]), (8, [1, 3, 5, 7]), (11, [1, 3, 5, 7, 9, 11])])
def test_epochs_are_whole_and_evenly_marked(epochs, ticks):
    axis = kt.plot_history({"loss": [1.0] * epochs}).axes[0]
    assert axis.get_xticks().tolist() == ticks


@pytest.mark.parametrize("schedule", [1e-3, [1e-3], {"constant": 1e-3}])
def test_what_is_no_schedule_is_named(schedule):
    with pytest.raises(TypeError, match="`schedules` must be functions of the number of updates"):
        kt.plot_schedule(schedule)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({"a": {"loss": [1]}, "loss": [1]},), TypeError, "Received: a mixture"),
        (({"a": {}},), ValueError, "at least one epoch's logs"),
        (({},), ValueError, "at least one epoch's logs"),
        ((HISTORY, ["bleu"]), ValueError, r"`names` must be among .*Received: \['bleu'\]"),
        (([1, 2],), TypeError, "Received: list"),
    ],
)
def test_nothing_to_draw_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        kt.plot_history(*arguments)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("share_embeddings", [False, True])
def test_the_numbers_of_a_drawn_model_add_up_to_its_parameters(normalize_first, share_embeddings):
    model = kt.Transformer(
        *(11, 11, 2, 3),
        d_model=6,
        num_heads=3,
        d_ff=7,
        normalize_first=normalize_first,
        share_embeddings=share_embeddings,
    )
    model.build()
    figure = kt.plot_transformer(model)
    total, side = 0, []
    for text in texts(figure):  # boxes of a side from below to above, then how often its layer comes
        if text.startswith("×"):
            repeats = int(text.removeprefix("× "))
            outside = [count for name, count in side if name.startswith("embedding")]
            final = side.pop() if side[-1][0] == "normalize" else ("", 0)  # pre-norm's last
            layer = sum(count for name, count in side if not name.startswith("embedding"))
            total += sum(outside) + repeats * layer + final[1]
            side = []
        elif ": " in text and text.rsplit(": ")[1].replace(",", "").isdigit():
            side.append((text.split(":")[0], int(text.rsplit(": ")[1].replace(",", ""))))
    assert total == model.count_params()
    assert f"{total:,} parameters" in figure.get_suptitle()
    assert ("pre-norm" in figure.get_suptitle()) == normalize_first


def test_a_drawn_model_shows_what_is_in_it(tmp_path):
    model = kt.Transformer(11, num_encoder_layers=2, num_decoder_layers=3, d_model=6, num_heads=3, d_ff=7)
    model.build()
    figure = kt.plot_transformer(model)
    shown = texts(figure)
    for name in ("self-attention, 3 heads of 2", "masked self-attention", "cross-attention", "feed-forward, 7 wide"):
        assert any(text.startswith(name) for text in shown)
    assert [text for text in shown if text.startswith("×")] == ["× 2", "× 3"]
    assert "keys and values" in shown
    figure.savefig(tmp_path / "model.png")


def test_a_model_without_weights_is_not_drawn():
    with pytest.raises(ValueError, match=r"call `model.build\(\)` first"):
        kt.plot_transformer(kt.Transformer.from_preset("tiny", source_vocabulary_size=10))


def test_what_is_no_transformer_is_not_drawn():
    with pytest.raises(TypeError, match=r"`model` must be a Transformer. Received: Sequential"):
        kt.plot_transformer(keras.Sequential())


def test_a_notebook_shows_a_picture_without_pyplot():
    png = kt.plot_positional_encoding(5, 4)._repr_png_()
    assert png.startswith(b"\x89PNG")
