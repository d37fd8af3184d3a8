"""The encoder layer: the paper's formula, a set without positions, a sequence with them, padding that is not seen."""

import numpy as np
import pytest
from keras.src import testing

from keras_transformer import EncoderLayer, PositionalEmbedding, padding_mask

B, S, N, H, D, D_FF = 2, 7, 3, 5, 12, 11
TOKEN_IDS = np.array([[5, 3, 8, 1, 0, 0, 0], [2, 9, 4, 4, 7, 1, 0]])


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # the harness trains from a generator
class TestHarness(testing.TestCase):
    def test_keras_own_harness(self):
        self.run_layer_test(
            EncoderLayer,
            init_kwargs={"num_heads": N, "d_ff": D_FF},
            input_shape=(B, S, D),
            expected_output_shape=(B, S, D),
            expected_num_trainable_weights=16,  # attention 8, feed-forward 4, two layer norms of 2
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=2,  # the two residual connections
            expected_num_losses=0,
            supports_masking=True,
        )

    def test_keras_own_harness_with_every_argument(self):
        self.run_layer_test(
            EncoderLayer,
            init_kwargs={
                "num_heads": N,
                "d_ff": D_FF,
                "dropout": 0.2,
                "attention_dropout": 0.1,
                "activation": "gelu",
                "normalize_first": True,
                "layer_norm_epsilon": 1e-5,
                "key_dim": H,
                "value_dim": 2,
                "kernel_initializer": "he_normal",
                "bias_initializer": "ones",
                "seed": 3,
            },
            input_shape=(B, S, D),
            expected_output_shape=(B, S, D),
            expected_num_trainable_weights=16,
            expected_num_seed_generators=3,
            supports_masking=True,
        )

    def test_keras_own_harness_with_scores(self):
        self.run_layer_test(
            EncoderLayer,
            init_kwargs={"num_heads": N, "d_ff": D_FF},
            input_shape=(B, S, D),
            call_kwargs={"return_attention_scores": True},
            expected_output_shape=((B, S, D), (B, N, S, S)),
            supports_masking=True,
            run_training_check=False,  # sums the output, which is a pair here
        )


def encoder_layer(randomize, **arguments):
    layer = EncoderLayer(N, D_FF, **arguments)
    layer.build((B, S, D))
    return randomize(layer)


def sublayers(layer, reference):
    """The four steps in NumPy: attention, its norm, feed-forward, its norm."""

    def attend(x, mask):
        return reference.multi_head_attention(layer.self_attention.get_weights(), x, x, mask)

    return (
        attend,
        lambda x: reference.layer_norm(layer.self_attention_residual.get_weights(), x),
        lambda x: reference.feed_forward(layer.feed_forward.get_weights(), x),
        lambda x: reference.layer_norm(layer.feed_forward_residual.get_weights(), x),
    )


@pytest.mark.parametrize("sizes", [{}, {"key_dim": H, "value_dim": 2}], ids=["default sizes", "own sizes"])
def test_post_norm_equals_the_papers_formula(rng, randomize, reference, sizes):
    layer = encoder_layer(randomize, **sizes)
    attend, norm_1, feed, norm_2 = sublayers(layer, reference)
    x, mask = rng.normal(size=(B, S, D)), padding_mask(TOKEN_IDS)

    output, scores = layer(x, attention_mask=mask, return_attention_scores=True)

    attended, expected_scores = attend(x, np.asarray(mask))
    hidden = norm_1(x + attended)
    np.testing.assert_allclose(output, norm_2(hidden + feed(hidden)), atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)


def test_pre_norm_normalizes_what_each_sublayer_reads(rng, randomize, reference):
    layer = encoder_layer(randomize, normalize_first=True)
    attend, norm_1, feed, norm_2 = sublayers(layer, reference)
    x, mask = rng.normal(size=(B, S, D)), padding_mask(TOKEN_IDS)

    output, scores = layer(x, attention_mask=mask, return_attention_scores=True)

    attended, expected_scores = attend(norm_1(x), np.asarray(mask))
    hidden = x + attended
    np.testing.assert_allclose(output, hidden + feed(norm_2(hidden)), atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)


@pytest.mark.parametrize("normalize_first", [False, True], ids=["post-norm", "pre-norm"])
def test_without_positions_permuting_the_input_permutes_the_output(rng, randomize, normalize_first):
    layer = encoder_layer(randomize, normalize_first=normalize_first)
    x, order = rng.normal(size=(B, S, D)), [4, 0, 6, 1, 5, 3, 2]

    np.testing.assert_allclose(layer(x[:, order]), np.asarray(layer(x))[:, order], atol=1e-5)


def test_with_positions_it_does_not(randomize):
    embedding, layer = PositionalEmbedding(11, D), encoder_layer(randomize)
    token_ids, order = np.array([[5, 3, 8, 1, 9, 2, 7]]), [4, 0, 6, 1, 5, 3, 2]

    permuted = layer(embedding(token_ids[:, order]))

    assert np.abs(permuted - np.asarray(layer(embedding(token_ids)))[:, order]).max() > 0.1


@pytest.mark.parametrize("implicit", [False, True], ids=["explicit mask", "implicit mask"])
def test_no_real_position_sees_padding_through_two_layers(rng, randomize, implicit):
    # Large noise in the embedding row of the pad id changes no real position.
    embedding = PositionalEmbedding(11, D, mask_zero=implicit)
    layers = [encoder_layer(randomize), encoder_layer(randomize)]
    masks = {} if implicit else {"attention_mask": padding_mask(TOKEN_IDS)}

    def encode():
        x, all_scores = embedding(TOKEN_IDS), []
        for layer in layers:
            x, scores = layer(x, return_attention_scores=True, **masks)
            all_scores.append(np.asarray(scores))
        return np.asarray(x), all_scores

    real = TOKEN_IDS != 0
    before, all_scores = encode()
    matrix = embedding.get_weights()[0]
    matrix[0] = 1000 * rng.normal(size=D)
    embedding.set_weights([matrix])
    after, _ = encode()

    np.testing.assert_allclose(after[real], before[real], atol=1e-6)
    for scores in all_scores:
        np.testing.assert_array_equal(scores != 0, np.broadcast_to(real[:, None, None, :], scores.shape))


@pytest.mark.parametrize("name", ["mask", "encoder_sequence_mask"])
def test_an_implicit_mask_may_be_given_by_hand(rng, randomize, name):
    _, scores = encoder_layer(randomize)(
        rng.normal(size=(B, S, D)), **{name: TOKEN_IDS != 0}, return_attention_scores=True
    )

    np.testing.assert_array_equal(
        np.asarray(scores) != 0, np.broadcast_to((TOKEN_IDS != 0)[:, None, None, :], scores.shape)
    )


def test_explicit_and_implicit_masks_hold_together(randomize):
    embedding, layer = PositionalEmbedding(11, D), encoder_layer(randomize)
    not_key_1 = np.arange(S)[None, None, :] != 1

    _, scores = layer(embedding(TOKEN_IDS), attention_mask=not_key_1, return_attention_scores=True)

    both = (TOKEN_IDS != 0)[:, None, None, :] & not_key_1[:, None]
    np.testing.assert_array_equal(np.asarray(scores) != 0, np.broadcast_to(both, scores.shape))


def test_a_single_token_can_be_encoded(rng, randomize):
    _, scores = encoder_layer(randomize)(rng.normal(size=(B, 1, D)), return_attention_scores=True)

    np.testing.assert_array_equal(scores, np.ones((B, N, 1, 1)))


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
def test_dropout_is_on_in_training_alone(rng, randomize, name):
    layer, x = encoder_layer(randomize, **{"dropout": 0.0, name: 0.5}), rng.normal(size=(B, S, D))

    np.testing.assert_array_equal(layer(x, training=False), layer(x))
    assert np.abs(layer(x, training=True) - layer(x)).max() > 0.01


def test_with_one_seed_the_dropouts_of_the_sublayers_drop_differently():
    layer, ones = EncoderLayer(N, D_FF, dropout=0.5, seed=3), np.ones((B, S, D))
    layer.build((B, S, D))
    first, second = (
        np.asarray(residual.dropout_layer(ones, training=True))
        for residual in (layer.self_attention_residual, layer.feed_forward_residual)
    )

    assert not np.array_equal(first, second)


def test_with_one_seed_two_layers_train_alike(rng):
    x = rng.normal(size=(B, S, D))
    first, second, other = (EncoderLayer(N, D_FF, dropout=0.5, seed=seed) for seed in (3, 3, 4))
    first.build(x.shape)
    for layer in (second, other):
        layer.build(x.shape)
        layer.set_weights(first.get_weights())

    trained = np.asarray(first(x, training=True))
    np.testing.assert_array_equal(second(x, training=True), trained)
    assert not np.array_equal(other(x, training=True), trained)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, "num_heads=0"),
        ({"d_ff": 0}, "d_ff=0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"attention_dropout": -1}, "attention_dropout=-1"),
        ({"key_dim": 0}, "key_dim=0"),
        ({"value_dim": -3}, "value_dim=-3"),
        ({"normalize_frist": True}, "normalize_frist"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        EncoderLayer(**{"num_heads": N, "d_ff": D_FF, **arguments})


def test_a_width_that_the_heads_do_not_divide_raises():
    with pytest.raises(ValueError, match="d_model=13, num_heads=3"):
        EncoderLayer(N, D_FF).build((B, S, 13))
    EncoderLayer(N, D_FF, key_dim=H).build((B, S, 13))  # with sizes of their own it need not
