"""The position-wise feed-forward network: the formula, and every position alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import testing

from keras_transformer import FeedForward

B, T, D, D_FF = 2, 5, 13, 11


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # the harness trains from a generator
class TestHarness(testing.TestCase):
    def test_keras_own_harness(self):
        self.run_layer_test(
            FeedForward,
            init_kwargs={"d_ff": D_FF},
            input_shape=(B, T, D),
            expected_output_shape=(B, T, D),
            expected_num_trainable_weights=4,
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=0,
            expected_num_losses=0,
            supports_masking=True,
        )

    def test_keras_own_harness_with_every_argument(self):
        self.run_layer_test(
            FeedForward,
            init_kwargs={
                "d_ff": D_FF,
                "activation": "gelu",
                "dropout": 0.1,
                "kernel_initializer": "he_normal",
                "bias_initializer": "ones",
                "seed": 3,
            },
            input_shape=(B, T, D),
            expected_output_shape=(B, T, D),
            expected_num_trainable_weights=4,
            expected_num_seed_generators=1,
            supports_masking=True,
        )


@pytest.fixture
def layer(randomize):
    layer = FeedForward(D_FF)
    layer.build((B, T, D))
    return randomize(layer)


def test_one_position_worked_by_hand():
    # x = (1, -2), W1 = [[1, 0], [0, 1]], b1 = (0, 1): x W1 + b1 = (1, -1), max(0, .) = (1, 0).
    # W2 = [[3, 5], [7, 7]], b2 = (10, 20): (3, 5) + (10, 20) = (13, 25).
    layer = FeedForward(2)
    layer.build((1, 1, 2))
    layer.set_weights([np.array(w) for w in ([[1, 0], [0, 1]], [0, 1], [[3, 5], [7, 7]], [10, 20])])

    np.testing.assert_array_equal(layer(np.array([[[1.0, -2.0]]])), [[[13, 25]]])


def test_equals_the_papers_formula(layer, rng, reference):
    sequence = rng.normal(size=(B, T, D))

    np.testing.assert_allclose(layer(sequence), reference.feed_forward(layer.get_weights(), sequence), atol=1e-5)


def test_permuting_positions_permutes_outputs(layer, rng):
    sequence, order = rng.normal(size=(B, T, D)), [3, 0, 4, 1, 2]

    np.testing.assert_allclose(layer(sequence[:, order]), np.asarray(layer(sequence))[:, order], atol=1e-6)


def test_no_position_sees_another(layer, rng):
    sequence = tf.constant(rng.normal(size=(1, T, D)), "float32")
    with tf.GradientTape() as tape:
        tape.watch(sequence)
        output = layer(sequence)
    jacobian = np.asarray(tape.jacobian(output, sequence))[0, :, :, 0]  # (T, D, T, D): output, then input
    moves = np.abs(jacobian).max(axis=(1, 3)) > 0

    np.testing.assert_array_equal(moves, np.eye(T, dtype=bool))


def test_another_activation_takes_the_place_of_relu(randomize, rng):
    layer = FeedForward(D_FF, activation="tanh")
    layer.build((B, T, D))
    sequence = rng.normal(size=(B, T, D))
    kernel_1, bias_1, kernel_2, bias_2 = randomize(layer).get_weights()

    expected = np.tanh(sequence @ kernel_1 + bias_1) @ kernel_2 + bias_2
    np.testing.assert_allclose(layer(sequence), expected, atol=1e-5)


def test_dropout_drops_hidden_units_in_training_alone(rng):
    # With W2 the identity and no biases the output is the hidden layer itself.
    layer = FeedForward(D, dropout=0.5, seed=3)
    layer.build((B, T, D))
    layer.set_weights([np.eye(D), np.zeros(D), np.eye(D), np.zeros(D)])
    sequence = rng.uniform(1, 2, size=(B, T, D)).astype("float32")
    trained = np.asarray(layer(sequence, training=True))
    kept = trained != 0

    np.testing.assert_array_equal(layer(sequence), sequence)
    assert 0.2 < kept.mean() < 0.8
    np.testing.assert_allclose(trained[kept], 2 * sequence[kept], rtol=1e-6)


def test_the_two_projections_of_one_initializer_object_start_different():
    layer = FeedForward(D, kernel_initializer=keras.initializers.GlorotUniform())  # D -> D -> D: one shape
    layer.build((B, T, D))

    assert not np.array_equal(layer.hidden_dense.get_weights()[0], layer.output_dense.get_weights()[0])


def test_an_initializer_may_be_a_function():
    layer = FeedForward(D_FF, kernel_initializer=lambda shape, dtype=None: tf.ones(shape, dtype))
    layer.build((B, T, D))

    np.testing.assert_array_equal(layer.get_weights()[0], np.ones((D, D_FF)))


def test_an_implicit_mask_passes_through():
    embedded = keras.layers.Embedding(7, D, mask_zero=True)(np.array([[3, 5, 0]]))

    np.testing.assert_array_equal(FeedForward(D_FF)(embedded)._keras_mask, [[True, True, False]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"d_ff": 0}, "d_ff=0"), ({"d_ff": 1.5}, "d_ff=1.5"), ({"dropout": 1}, "dropout=1"), ({"dff": 3}, "dff")],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(**{"d_ff": D_FF, **arguments})
