"""Dropout: the right share, no pattern, one mask forward and backward, the same masks in every mode."""

import numpy as np
import pytest
import tensorflow as tf
from keras.src.testing import TestCase

from keras_transformer.layers.dropout import Dropout, keep_mask

STATE = np.array([3, 0])


def kept(layer, shape=(64, 512), dtype="float32"):
    return np.asarray(layer(tf.ones(shape, dtype), training=True)) != 0


class TestDropoutUnderKerasHarness(TestCase):
    def test_keras_own_harness(self):
        self.run_layer_test(
            Dropout,
            init_kwargs={"rate": 0.3, "seed": 3},
            input_shape=(2, 5, 7),
            expected_output_shape=(2, 5, 7),
            expected_num_trainable_weights=0,
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=1,
            expected_num_losses=0,
            supports_masking=True,
            run_training_check=False,
        )


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.37, 0.5, 0.9])
def test_the_share_dropped_is_the_rate_within_chance(rate):
    size, keep = 2**21, np.asarray(keep_mask((2**10, 2**11), rate, STATE))
    assert abs(size - keep.sum() - rate * size) < 5 * np.sqrt(size * rate * (1 - rate)) + size * 2**-16


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_stays_is_scaled_so_that_the_mean_stays(rng, dtype):
    layer, x = Dropout(0.25, seed=1, dtype=dtype), tf.cast(rng.normal(2, 1, size=(300, 401)), dtype)
    y = layer(x, training=True)
    assert y.dtype == x.dtype
    x, y = (np.asarray(tf.cast(z, "float64")) for z in (x, y))
    np.testing.assert_allclose(y[y != 0], x[y != 0] / 0.75, rtol=2**-7 if "16" in dtype else 1e-6)
    assert y.mean() == pytest.approx(x.mean(), rel=0.01)


def test_nothing_is_dropped_outside_training_or_at_rate_0():
    x = tf.random.normal((3, 5))
    for output in (Dropout(0.5)(x), Dropout(0.5)(x, training=False), Dropout(0.0)(x, training=True)):
        np.testing.assert_array_equal(output, x)
    assert not Dropout(0.0).variables


def test_neighbours_are_independent():
    """Of elements some steps apart, along rows, across rows, within a hash's word or not: correlation as by chance."""
    keep = np.asarray(keep_mask((2**9, 2**12), 0.5, STATE)).ravel().astype("float64") - 0.5
    for step in [*range(1, 18), 31, 32, 64, 255, 256, 1024, 4095, 4096, 4097, 2**15, 2**20]:
        correlation = 4 * np.mean(keep[:-step] * keep[step:])
        assert abs(correlation) < 5 / np.sqrt(keep.size - step), step


def test_rows_and_columns_drop_as_often_as_binomials_do():
    keep = np.asarray(keep_mask((1024, 1024), 0.1, STATE))
    for axis in (0, 1):
        counts = keep.shape[axis] - keep.sum(axis=axis)
        assert np.mean((counts - 102.4) ** 2) / (1024 * 0.1 * 0.9) == pytest.approx(1, abs=5 * np.sqrt(2 / 1024))


def test_groups_of_8_elements_take_every_pattern_equally_often():
    patterns = np.packbits(np.asarray(keep_mask((2**10, 2**11), 0.5, STATE)).reshape(-1, 8), axis=1)
    observed, expected = np.bincount(patterns.ravel(), minlength=256), 2**21 / 8 / 256
    statistic = ((observed - expected) ** 2 / expected).sum()  # chi squared, 255 degrees of freedom
    assert 255 - 5 * np.sqrt(2 * 255) < statistic < 255 + 5 * np.sqrt(2 * 255)


def test_calls_seeds_and_shifted_calls_are_unrelated():
    states = [(seed, call) for seed in (0, 1, 2, 3, 2**31, 2**32 - 1) for call in (0, 1, 2, 3, 100_000)]
    masks = np.stack([np.asarray(keep_mask((64, 256), 0.5, np.array(s, "int64"))).ravel() for s in states]) - 0.5
    for shift in (0, 1, 2, 64, 256):
        correlations = 4 * masks @ np.roll(masks, shift, axis=1).T / masks.shape[1]
        if shift == 0:
            correlations -= np.eye(len(states))
        assert np.abs(correlations).max() < 6 / np.sqrt(masks.shape[1])


def test_each_call_draws_anew_and_a_seed_repeats_the_draws():
    first, second = Dropout(0.5, seed=7), Dropout(0.5, seed=7)
    draws = [kept(first) for _ in range(3)]
    assert not (draws[0] == draws[1]).all()
    assert not (draws[1] == draws[2]).all()
    for draw in draws:
        np.testing.assert_array_equal(kept(second), draw)
    assert not (kept(Dropout(0.5, seed=8)) == draws[0]).all()


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 7), (2, 3, 4, 6)])
def test_masks_are_the_same_eagerly_in_a_graph_of_any_shape_and_under_xla(shape):
    outputs = []
    for jit_compile, signature in ((None, None), (False, [None] * len(shape)), (True, shape)):
        layer = Dropout(0.4, seed=5)

        def run(x, layer=layer):
            return layer(x, training=True)

        if jit_compile is not None:
            run = tf.function(run, jit_compile=jit_compile, input_signature=[tf.TensorSpec(signature)])
        outputs.append([np.asarray(run(tf.ones(shape))) for _ in range(2)])
    np.testing.assert_array_equal(outputs[1], outputs[0])
    np.testing.assert_array_equal(outputs[2], outputs[0])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_gradient_goes_through_the_elements_that_stayed(jit_compile):
    layer = Dropout(0.4, seed=5)

    @tf.function(jit_compile=jit_compile)
    def output_and_gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x)

    y, gradient = output_and_gradient(tf.ones((11, 13, 6)))
    np.testing.assert_array_equal(gradient, y)
    assert 0 < (np.asarray(y) == 0).mean() < 1


def test_what_is_dropped_is_0_whatever_it_was():
    y = np.asarray(Dropout(0.5, seed=1)(tf.fill((8, 8), np.float32(np.inf)), training=True))
    assert set(y.ravel()) == {0, np.inf}


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, "0.1", True])
def test_a_wrong_rate_is_named(rate):
    with pytest.raises(ValueError, match=r"`rate`.*rate="):
        Dropout(rate)
