"""Encoder and Decoder as layers of their own."""

import json

import keras
import numpy as np
import pytest
from keras.src import testing

import keras_transformer as kt
from keras_transformer import Decoder, Encoder

B, T, S, D, N, D_FF = 2, 5, 7, 6, 3, 11

EVERY_ARGUMENT = {
    "num_layers": 2,
    "num_heads": N,
    "d_ff": D_FF,
    "dropout": 0.2,
    "attention_dropout": 0.1,
    "activation": "gelu",
    "normalize_first": True,
    "layer_norm_epsilon": 1e-5,
    "key_dim": 5,
    "value_dim": 2,
    "seed": 3,
}


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # the harness trains from a generator
class EncoderHarness(testing.TestCase):
    def test_keras_own_harness(self):
        self.run_layer_test(
            Encoder,
            init_kwargs={"num_layers": 2, "num_heads": N, "d_ff": D_FF},
            input_shape=(B, S, D),
            expected_output_shape=(B, S, D),
            expected_num_trainable_weights=2 * 16,
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=2 * 2,
            expected_num_losses=0,
            supports_masking=True,
        )

    def test_keras_own_harness_with_every_argument(self):
        self.run_layer_test(
            Encoder,
            init_kwargs=EVERY_ARGUMENT,
            input_shape=(B, S, D),
            expected_output_shape=(B, S, D),
            expected_num_trainable_weights=2 * 16 + 2,
            expected_num_seed_generators=2 * 3,
            supports_masking=True,
        )


class DecoderHarness(testing.TestCase):
    def test_keras_own_harness(self):
        self.run_layer_test(
            Decoder,
            init_kwargs={"num_layers": 2, "num_heads": N, "d_ff": D_FF},
            input_shape={"decoder_sequence_shape": (B, T, D), "encoder_sequence_shape": (B, S, D)},
            expected_output_shape=(B, T, D),
            expected_num_trainable_weights=2 * 26,
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=2 * 3,
            expected_num_losses=0,
            supports_masking=True,
            run_training_check=False,
        )

    def test_keras_own_harness_with_every_argument(self):
        self.run_layer_test(
            Decoder,
            init_kwargs=EVERY_ARGUMENT,
            input_shape={"decoder_sequence_shape": (B, T, D), "encoder_sequence_shape": (B, S, D)},
            expected_output_shape=(B, T, D),
            expected_num_trainable_weights=2 * 26 + 2,
            expected_num_seed_generators=2 * 5,
            supports_masking=True,
            run_training_check=False,
        )


def shapes(layer_class):
    return {Encoder: [(B, S, D)], Decoder: [(B, T, D), (B, S, D)]}[layer_class]


@pytest.mark.parametrize("layer_class", [Encoder, Decoder])
def test_build_makes_the_weights_of_a_call(layer_class):
    built, called = layer_class(**EVERY_ARGUMENT), layer_class(**EVERY_ARGUMENT)
    built.build(*shapes(layer_class))
    called(*(np.ones(shape, "float32") for shape in shapes(layer_class)))
    paths = [[(w.path.split("/", 1)[1], tuple(w.shape)) for w in layer.weights] for layer in (built, called)]
    assert paths[0] == paths[1]
    called.set_weights(built.get_weights())


@pytest.mark.parametrize("layer_class", [Encoder, Decoder])
def test_config_is_the_arguments_in_plain_values(layer_class):
    layer = layer_class(**EVERY_ARGUMENT, name="stack")
    own = {key: value for key, value in layer.get_config().items() if key not in {"name", "dtype", "trainable"}}
    assert own == EVERY_ARGUMENT
    assert json.loads(json.dumps(own)) == own
    assert layer_class.from_config(layer.get_config()).get_config() == layer.get_config()


@pytest.mark.parametrize("layer_class", [Encoder, Decoder])
@pytest.mark.parametrize(("name", "value"), [("num_layers", 0), ("num_heads", -1), ("d_ff", 1.5), ("dropout", 1.0)])
def test_wrong_arguments_are_named(layer_class, name, value):
    with pytest.raises(ValueError, match=f"{name}={value}"):
        layer_class(**{**EVERY_ARGUMENT, name: value})


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_implicit_masks_are_honoured_by_every_layer(policy):
    """Composed by hand from an embedding with `mask_zero`, as with explicit masks, through three layers."""
    keras.utils.set_random_seed(1)
    embedding = kt.PositionalEmbedding(17, D, dtype=policy)
    encoder = Encoder(3, N, D_FF, dropout=0.0, key_dim=4, dtype=policy)
    decoder = Decoder(3, N, D_FF, dropout=0.0, key_dim=4, dtype=policy)
    source, target = np.array([[5, 6, 7, 8], [9, 10, 0, 0]]), np.array([[2, 5, 0], [2, 6, 7]])
    memory = encoder(embedding(source))
    implicit = numpy(decoder(embedding(target), memory))

    plain = kt.PositionalEmbedding(17, D, mask_zero=False, dtype=policy)
    plain.build()
    plain.set_weights(embedding.get_weights())
    source_mask, target_mask = kt.padding_mask(source), kt.padding_mask(target)
    memory = encoder(plain(source), source_mask)
    explicit = numpy(decoder(plain(target), memory, target_mask, source_mask))
    np.testing.assert_array_equal(implicit, explicit)
    unmasked = numpy(decoder(plain(target), encoder(plain(source))))
    assert np.abs(unmasked - explicit)[1].max() > 0.01
