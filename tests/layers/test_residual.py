"""The residual connection: post-norm as in the paper, pre-norm by switch, dropout on the sublayer's output alone."""

import numpy as np
import pytest
import tensorflow as tf
from keras.src import testing

from keras_transformer.layers import ResidualConnection

B, T, D = 2, 5, 13


class TestHarness(testing.TestCase):
    def test_keras_own_harness(self):
        for arguments in ({}, {"normalize_first": True, "layer_norm_epsilon": 1e-5}):
            self.run_layer_test(
                ResidualConnection,
                init_kwargs={"dropout": 0.1, "seed": 3, **arguments},
                input_shape={"sequence_shape": (B, T, D), "output_shape": (B, T, D)},
                expected_output_shape=(B, T, D),
                expected_num_trainable_weights=2,
                expected_num_non_trainable_weights=0,
                expected_num_seed_generators=1,
                expected_num_losses=0,
                supports_masking=True,
                run_training_check=False,
            )


def residual(randomize, **arguments):
    layer = ResidualConnection(**arguments)
    layer.build((B, T, D))
    return randomize(layer)


def test_post_norm_normalizes_the_sum_and_the_sublayer_reads_the_input(rng, randomize, reference):
    layer = residual(randomize)
    sequence, output = rng.normal(size=(2, B, T, D))

    assert layer.before(sequence) is sequence
    np.testing.assert_allclose(
        layer(sequence, output), reference.layer_norm(layer.get_weights(), sequence + output), atol=1e-5
    )


def test_pre_norm_normalizes_what_the_sublayer_reads_and_leaves_the_sum(rng, randomize, reference):
    layer = residual(randomize, normalize_first=True)
    sequence, output = rng.normal(size=(2, B, T, D))

    np.testing.assert_allclose(
        layer.before(tf.constant(sequence, "float32")),
        reference.layer_norm(layer.get_weights(), sequence),
        atol=1e-5,
    )
    np.testing.assert_allclose(layer(sequence, output), sequence + output, atol=1e-6)


def test_two_values_normalized_by_hand():
    # x + output = (1, 3): mean 2, variance 1, so (-1, 1) / sqrt(1 + 1e-6); times scale (2, 2) plus shift (10, 20).
    layer = ResidualConnection()
    layer.build((1, 1, 2))
    layer.set_weights([np.array([2, 2]), np.array([10, 20])])

    np.testing.assert_allclose(layer(np.array([[[0.0, 1.0]]]), np.array([[[1.0, 2.0]]])), [[[8, 22]]], atol=1e-5)


def test_epsilon_is_small_enough_for_small_values():
    # Deviations of 0.01: Keras' own epsilon of 1e-3 would shrink them to 0.3 instead of 1.
    layer = ResidualConnection()
    sequence, output = np.array([[[-0.01, 0.01]]]), np.zeros((1, 1, 2))

    np.testing.assert_allclose(layer(sequence, output), [[[-1, 1]]], atol=0.01)


def test_dropout_drops_the_sublayers_output_alone_in_training_alone(rng):
    layer = ResidualConnection(dropout=0.5, normalize_first=True, seed=3)
    sequence, output = rng.uniform(1, 2, size=(2, B, T, D)).astype("float32")
    added = np.asarray(layer(sequence, output, training=True)) - sequence
    kept = np.abs(added) > 1e-6

    np.testing.assert_allclose(layer(sequence, output), sequence + output, atol=1e-6)
    assert 0.2 < kept.mean() < 0.8
    np.testing.assert_allclose(added[kept], 2 * output[kept], atol=1e-5)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="dropout=2"):
        ResidualConnection(dropout=2)
    with pytest.raises(ValueError, match="normalise_first"):
        ResidualConnection(normalise_first=True)
