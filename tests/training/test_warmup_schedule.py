"""The paper's learning rate (section 5.3, equation 3)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt


def paper(step_num, d_model=512, warmup_steps=4000):
    """The paper's formula, which counts updates from 1."""
    return d_model**-0.5 * min(step_num**-0.5, step_num * warmup_steps**-1.5)


STEPS = [0, 1, 3999, 4000, 1_000_000]
FORMS = {
    "int": int,
    "float": float,
    "numpy int64": np.int64,
    "numpy float32": np.float32,
    "int32 tensor": lambda step: tf.constant(step, "int32"),
    "int64 tensor": lambda step: tf.constant(step, "int64"),
    "float32 tensor": lambda step: tf.constant(step, "float32"),
    "int64 variable": lambda step: keras.Variable(step, dtype="int64", trainable=False),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("form", FORMS)
def test_the_papers_formula_at_step_plus_1(step, form):
    rate = kt.WarmupSchedule(512)(FORMS[form](step))
    assert keras.backend.standardize_dtype(rate.dtype) == "float32"
    np.testing.assert_allclose(float(rate), paper(step + 1), rtol=1e-6)


def test_by_hand():
    """d_model 4, 4 warm-up steps: a sixteenth of the step number, then 1 / (2 sqrt(step number))."""
    schedule = kt.WarmupSchedule(4, warmup_steps=4)
    rates = [float(schedule(step)) for step in range(9)]
    expected = [1 / 16, 2 / 16, 3 / 16, 4 / 16, 0.5 / 5**0.5, 0.5 / 6**0.5, 0.5 / 7**0.5, 0.5 / 8**0.5, 0.5 / 3]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.parametrize("warmup_steps", [1, 10, 4000])
def test_the_peak_is_the_update_number_warmup_steps(warmup_steps):
    rates = np.array(kt.WarmupSchedule(512, warmup_steps)(np.arange(2 * warmup_steps + 2)))
    assert (rates > 0).all()
    assert rates.argmax() + 1 == warmup_steps
    assert (np.diff(rates[:warmup_steps]) > 0).all()
    assert (np.diff(rates[warmup_steps - 1 :]) < 0).all()


def test_scale_is_a_factor():
    for step in STEPS:
        np.testing.assert_allclose(float(kt.WarmupSchedule(512, scale=2.5)(step)), 2.5 * paper(step + 1), rtol=1e-6)


def test_in_a_graph_and_under_xla():
    for jit_compile in (False, True):
        function = tf.function(kt.WarmupSchedule(512), jit_compile=jit_compile)
        np.testing.assert_allclose(float(function(tf.constant(3999, "int64"))), paper(4000), rtol=1e-6)


def test_round_trip():
    schedule = kt.WarmupSchedule(128, warmup_steps=77, scale=0.5)
    assert schedule.get_config() == {"d_model": 128, "warmup_steps": 77, "scale": 0.5}
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert isinstance(again, kt.WarmupSchedule)
    assert [float(again(step)) for step in STEPS] == [float(schedule(step)) for step in STEPS]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"d_model": 0}, "d_model=0"),
        ({"d_model": 512, "warmup_steps": 0}, "warmup_steps=0"),
        ({"d_model": 512, "warmup_steps": -5}, "warmup_steps=-5"),
        ({"d_model": 512, "scale": 0.0}, "scale=0.0"),
        ({"d_model": 512, "scale": float("nan")}, "scale=nan"),
    ],
)
def test_impossible_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        kt.WarmupSchedule(**arguments)


def test_transformer_optimizer_is_the_papers_adam():
    optimizer = kt.transformer_optimizer(256, warmup_steps=100, scale=2.0, global_clipnorm=1.0)
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert optimizer.global_clipnorm == 1.0
    config = kt.WarmupSchedule(256, 100, 2.0).get_config()
    assert optimizer._learning_rate.get_config() == config
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.get_config() == optimizer.get_config()
    assert kt.transformer_optimizer(256, epsilon=1e-6).epsilon == 1e-6


def test_updates_follow_the_schedule():
    """The first update's rate is above 0; the rate after u updates is schedule(u)."""
    optimizer, weight = kt.transformer_optimizer(4, warmup_steps=4), keras.Variable(1.0)
    for update in range(6):
        np.testing.assert_allclose(float(optimizer.learning_rate), paper(update + 1, 4, 4), rtol=1e-6)
        before = float(weight)
        optimizer.apply([tf.constant(1.0)], [weight])
        # A constant gradient: Adam moves by the rate.
        np.testing.assert_allclose(before - float(weight), paper(update + 1, 4, 4), rtol=1e-4)
