"""Token embedding x sqrt(d_model) + position, and the same matrix as the output projection."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from keras.src import testing

from keras_transformer import MultiHeadAttention, PositionalEmbedding, positional_encoding

B, T, V, D = 2, 5, 17, 6
TOKEN_IDS = np.array([[3, 16, 1, 1, 0], [2, 9, 0, 0, 0]])


def embedding_and_matrix(rng, **options):
    layer = PositionalEmbedding(V, D, **options)
    layer.build()
    matrix = rng.normal(size=(V, D)).astype("float32")
    layer.set_weights([matrix])
    return layer, matrix


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # the harness trains from a generator
class TestHarness(testing.TestCase):
    def test_keras_own_harness(self):
        self.run_layer_test(
            PositionalEmbedding,
            init_kwargs={"vocabulary_size": V, "d_model": D, "dropout": 0.1, "seed": 3},
            input_shape=(B, T),
            input_dtype="int32",
            expected_output_shape=(B, T, D),
            expected_num_trainable_weights=1,
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=1,
            expected_num_losses=0,
            supports_masking=True,
            expected_mask_shape=(B, T),
        )

    def test_keras_own_harness_without_mask_and_dropout(self):
        self.run_layer_test(
            PositionalEmbedding,
            init_kwargs={"vocabulary_size": V, "d_model": D, "mask_zero": False, "embeddings_initializer": "zeros"},
            input_shape=(B, T),
            input_dtype="int32",
            expected_output_shape=(B, T, D),
            expected_num_trainable_weights=1,
            expected_num_seed_generators=0,
            supports_masking=False,
        )


def test_one_token_worked_by_hand():
    # d_model = 4: sqrt(4) = 2. Token 2 at position 1: 2 * (1, 2, 3, 4) + (sin 1, cos 1, sin 0.01, cos 0.01).
    layer = PositionalEmbedding(3, 4)
    layer.build()
    layer.set_weights([np.array([[9, 9, 9, 9], [0, 0, 0, 0], [1, 2, 3, 4]])])

    output = layer(np.array([[1, 2]]))

    np.testing.assert_allclose(output[0, 0], [0, 1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(output[0, 1], [2.8414710, 4.5403023, 6.0099998, 8.9999500], atol=1e-6)


def test_every_token_is_scaled_and_stands_at_its_position(rng):
    layer, matrix = embedding_and_matrix(rng)

    np.testing.assert_allclose(layer(TOKEN_IDS), matrix[TOKEN_IDS] * np.sqrt(D) + positional_encoding(T, D), atol=1e-6)


@pytest.mark.parametrize("start_index", [0, 1, 300, 5000])
def test_start_index_shifts_the_positions(rng, start_index):
    layer, matrix = embedding_and_matrix(rng)
    expected = matrix[TOKEN_IDS] * np.sqrt(D) + positional_encoding(start_index + T, D)[start_index:]

    np.testing.assert_allclose(layer(TOKEN_IDS, start_index=start_index), expected, atol=2e-6)
    np.testing.assert_allclose(layer(TOKEN_IDS, start_index=tf.constant(start_index)), expected, atol=2e-6)


def test_a_length_known_only_in_the_graph(rng):
    layer, _ = embedding_and_matrix(rng)
    traced = tf.function(layer, input_signature=[tf.TensorSpec((None, None), "int64")])

    np.testing.assert_allclose(traced(TOKEN_IDS), layer(TOKEN_IDS), atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_token_ids_of_every_integer_type(rng, dtype):
    layer, _ = embedding_and_matrix(rng)

    np.testing.assert_array_equal(layer(TOKEN_IDS.astype(dtype)), layer(TOKEN_IDS))


@pytest.mark.parametrize(("policy", "tolerance"), [("mixed_float16", 1e-3), ("mixed_bfloat16", 1e-2)])
def test_positions_in_16_bits_are_the_float32_sum_rounded_once(reference, policy, tolerance):
    # Rounded positions, or a sum in 16 bits, would be off by more where the embedding is large.
    layer = PositionalEmbedding(V, D, embeddings_initializer="zeros", dtype=policy)
    output = layer(np.ones((1, 4096), "int32"))

    assert output.dtype == layer.compute_dtype
    np.testing.assert_allclose(np.asarray(output, "float64")[0], reference.sinusoids(range(4096), D), atol=tolerance)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_the_sum_is_made_in_float32(rng, policy):
    layer, matrix = embedding_and_matrix(rng, dtype=policy)
    exact = tf.constant(matrix[TOKEN_IDS] * np.float32(np.sqrt(D)) + positional_encoding(T, D))

    np.testing.assert_array_equal(
        np.asarray(layer(TOKEN_IDS), "float32"), np.asarray(tf.cast(exact, layer.compute_dtype), "float32")
    )


def test_dropout_is_on_in_training_alone(rng):
    layer, _ = embedding_and_matrix(rng, dropout=0.5, seed=3)
    without = np.asarray(layer(TOKEN_IDS))
    trained = np.asarray(layer(TOKEN_IDS, training=True))
    kept = trained != 0

    np.testing.assert_array_equal(layer(TOKEN_IDS, training=False), without)
    assert 0.2 < kept.mean() < 0.8
    np.testing.assert_allclose(trained[kept], 2 * without[kept], rtol=1e-6)  # what is kept is divided by 1 - 0.5


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16", "float64"])
def test_project_is_the_product_with_the_transposed_matrix_in_full_precision(rng, policy):
    layer, matrix = embedding_and_matrix(rng, dtype=policy)
    sequence = tf.cast(rng.normal(size=(B, T, D)), layer.compute_dtype)

    logits = layer.project(sequence)

    assert logits.dtype == ("float64" if policy == "float64" else "float32")
    np.testing.assert_allclose(logits, np.asarray(sequence, "float64") @ matrix.astype("float64").T, atol=1e-5)


def test_embedding_and_projection_are_one_weight_that_learns_from_both(rng):
    layer, _ = embedding_and_matrix(rng)
    token_ids = np.array([[3]])

    def gradient_of(loss):
        with tf.GradientTape() as tape:
            value = loss()
        return np.asarray(tf.convert_to_tensor(tape.gradient(value, layer.trainable_variables[0].value)))

    assert len(layer.weights) == 1
    from_embedding = gradient_of(lambda: tf.reduce_sum(layer(token_ids)))
    from_projection = gradient_of(lambda: tf.reduce_sum(layer.project(tf.ones((1, 1, D)))))
    np.testing.assert_allclose(from_embedding, np.eye(V)[3][:, None] * np.full((1, D), np.sqrt(D)), rtol=1e-6)
    np.testing.assert_array_equal(from_projection, np.ones((V, D)))


def test_the_implicit_mask_marks_real_tokens_for_the_layers_that_follow(rng):
    embedding, attention = embedding_and_matrix(rng)[0], MultiHeadAttention(3, 11)
    embedded = embedding(TOKEN_IDS)

    _, weights = attention(embedded, embedded, return_attention_scores=True)

    np.testing.assert_array_equal(embedding.compute_mask(TOKEN_IDS, None), TOKEN_IDS != 0)
    np.testing.assert_array_equal(
        np.asarray(weights) > 0, np.broadcast_to((TOKEN_IDS != 0)[:, None, None, :], (B, 3, T, T))
    )


def test_without_mask_zero_nothing_is_masked(rng):
    embedding, attention = embedding_and_matrix(rng, mask_zero=False)[0], MultiHeadAttention(3, 11)
    embedded = embedding(TOKEN_IDS)

    _, weights = attention(embedded, embedded, return_attention_scores=True)

    assert embedding.compute_mask(TOKEN_IDS, None) is None
    assert (np.asarray(weights) > 0).all()


def test_a_fresh_scaled_embedding_has_variance_one():
    # Standard deviation d_model^-0.5 times sqrt(d_model). 64 * 1009 values: the error of their deviation is 0.3 %.
    layer = PositionalEmbedding(1009, 64)
    layer.build()

    assert np.std(layer.get_weights()[0]) * 64**0.5 == pytest.approx(1, abs=0.02)


def test_two_layers_with_one_initializer_object_start_different():
    initializer = keras.initializers.RandomNormal()
    layers = [PositionalEmbedding(V, D, embeddings_initializer=initializer) for _ in range(2)]
    for layer in layers:
        layer.build()

    assert not np.array_equal(layers[0].get_weights()[0], layers[1].get_weights()[0])


def test_the_matrix_may_come_from_elsewhere(rng):
    matrix = rng.normal(size=(V, D)).astype("float32")
    layer = PositionalEmbedding(V, D, embeddings_initializer=matrix)
    layer.build()

    np.testing.assert_array_equal(layer.get_weights()[0], matrix)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size=0"),
        ({"vocabulary_size": 2.5}, "vocabulary_size=2.5"),
        ({"d_model": -4}, "d_model=-4"),
        ({"d_model": 5}, "d_model=5"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"dropout": -0.1}, "dropout=-0.1"),
        ({"drop_out": 0.1}, "drop_out"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        PositionalEmbedding(**{"vocabulary_size": V, "d_model": D, **arguments})


def test_token_ids_of_another_rank_raise():
    with pytest.raises(ValueError, match=r"`token_ids` must have rank 2.*shape=\(5,\)"):
        PositionalEmbedding(V, D)(ops.ones(5, "int32"))


def test_a_negative_start_index_raises():
    with pytest.raises(ValueError, match=r"start.*-1"):
        PositionalEmbedding(V, D)(np.ones((B, 1), "int32"), start_index=-1)
