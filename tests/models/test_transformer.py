"""The model's arguments, outputs, dtypes and errors."""

import json

import keras
import numpy as np
import pytest

import keras_transformer as kt

POLICIES = ["float32", "mixed_float16", "mixed_bfloat16", "float64"]


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("normalize_first", [False, True])
def test_logits_are_float32_or_better(make_model, make_batch, policy, normalize_first):
    model = make_model(dtype=policy, normalize_first=normalize_first)
    logits = model(make_batch((7, 4, 2), (5, 3, 4)))
    assert logits.shape == (3, 5, 29)
    assert logits.dtype == ("float64" if policy == "float64" else "float32")
    assert model.encoder.layers[0].feed_forward.compute_dtype == keras.DTypePolicy(policy).compute_dtype
    assert all(weight.dtype == keras.DTypePolicy(policy).variable_dtype for weight in model.weights)
    assert np.isfinite(numpy(logits)).all()


@pytest.mark.parametrize(("policy", "tolerance"), [("mixed_float16", 0.02), ("mixed_bfloat16", 0.1), ("float64", 1e-5)])
def test_policies_agree(make_model, make_batch, policy, tolerance):
    reference, model = make_model(), make_model(dtype=policy)
    model.set_weights(reference.get_weights())
    expected = numpy(reference(make_batch()))
    assert np.abs(numpy(model(make_batch())) - expected).max() < tolerance * np.abs(expected).max()


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("share_embeddings", [False, True])
def test_encode_then_decode_is_call(make_model, make_batch, normalize_first, share_embeddings):
    model = make_model(normalize_first=normalize_first, share_embeddings=share_embeddings)
    batch = make_batch((7, 4, 2), (5, 3, 4))
    encoder_sequence, encoder_padding_mask = model.encode(batch["encoder_token_ids"])
    assert encoder_sequence.shape == (3, 7, 16)
    assert encoder_padding_mask.dtype == "bool"
    np.testing.assert_array_equal(numpy(encoder_padding_mask), batch["encoder_token_ids"][:, None, :] != 0)
    logits = model.decode(batch["decoder_token_ids"], encoder_sequence, encoder_padding_mask)
    np.testing.assert_allclose(numpy(logits), numpy(model(batch)), atol=1e-6)


def test_encode_on_a_new_model_and_with_plain_lists():
    model = kt.Transformer(29, None, 2, 2, d_model=16, num_heads=2, d_ff=24)
    encoder_sequence, encoder_padding_mask = model.encode([[5, 6, 3]])
    logits = model.decode([[2, 7]], encoder_sequence, encoder_padding_mask)
    both = model({"encoder_token_ids": np.array([[5, 6, 3]]), "decoder_token_ids": np.array([[2, 7]])})
    np.testing.assert_allclose(numpy(logits), numpy(both), atol=1e-6)


def test_dropout_acts_in_training_alone(make_model, make_batch):
    model, batch = make_model(dropout=0.5), make_batch()
    plain = numpy(model(batch))
    np.testing.assert_array_equal(numpy(model(batch, training=False)), plain)
    dropped = numpy(model(batch, training=True))
    assert np.abs(dropped - plain).max() > 0.1
    assert np.abs(numpy(model(batch, training=True)) - dropped).max() > 0.1, "every call draws another mask"
    memory, mask = model.encode(batch["encoder_token_ids"])
    trained_memory, _ = model.encode(batch["encoder_token_ids"], training=True)
    assert np.abs(numpy(trained_memory) - numpy(memory)).max() > 0.1
    decoded = numpy(model.decode(batch["decoder_token_ids"], memory, mask, training=True))
    assert np.abs(decoded - plain).max() > 0.1


def test_every_dropout_draws_once_in_training_and_never_else(make_model, make_batch):
    model, batch = make_model(dropout=0.1, attention_dropout=0.1, share_embeddings=False), make_batch()
    source_ids, target_ids = batch["encoder_token_ids"], batch["decoder_token_ids"]
    weights = {id(weight) for weight in model.weights}
    states = [variable for variable in model.variables if id(variable) not in weights]
    assert len(states) == 2 + 2 * 3 + 2 * 5  # embeddings, encoder layers, decoder layers

    model(batch, training=True)
    assert [int(numpy(state)[1]) for state in states] == [1] * len(states)
    memory, mask = model.encode(source_ids, training=True)
    model.decode(target_ids, memory, mask, training=True)
    assert [int(numpy(state)[1]) for state in states] == [2] * len(states)

    model(batch)
    memory, mask = model.encode(source_ids)
    model.decode(target_ids, memory, mask)
    model.step(target_ids[:, 0], 0, model.init_state(memory, mask, 4))
    assert [int(numpy(state)[1]) for state in states] == [2] * len(states)


def test_attention_dropout_alone_acts_in_training(make_model, make_batch):
    model, batch = make_model(attention_dropout=0.5), make_batch()
    assert np.abs(numpy(model(batch, training=True)) - numpy(model(batch))).max() > 0.1


@pytest.mark.parametrize("length", [300, 1500])
def test_any_length_past_training(make_model, length):
    """No table of positions ends: what stands at position `length - 1` is told from what stands before it."""
    model = make_model()
    model({"encoder_token_ids": np.full((1, 5), 7), "decoder_token_ids": np.full((1, 5), 7)})
    rng = np.random.default_rng(6)
    batch = {
        "encoder_token_ids": rng.integers(4, 29, (1, length), "int32"),
        "decoder_token_ids": rng.integers(4, 29, (1, length), "int32"),
    }
    logits = numpy(model(batch))
    assert np.isfinite(logits).all()
    short = {**batch, "decoder_token_ids": batch["decoder_token_ids"][:, :9]}
    np.testing.assert_allclose(numpy(model(short)), logits[:, :9], atol=1e-4)
    repeated = numpy(model({**batch, "decoder_token_ids": np.full((1, length), 7, "int32")}))[0]
    assert np.abs(repeated[-1] - repeated[:-1]).max(-1).min() > 1e-4


def test_scores_leave_the_logits_alone(make_model, make_batch):
    model = make_model(num_encoder_layers=1, num_decoder_layers=3)
    logits, scores = model(make_batch(), return_attention_scores=True)
    np.testing.assert_array_equal(numpy(logits), numpy(model(make_batch())))
    assert {name: [tuple(layer.shape) for layer in layers] for name, layers in scores.items()} == {
        "encoder": [(3, 2, 7, 7)],
        "decoder": [(3, 2, 5, 5)] * 3,
        "cross": [(3, 2, 5, 7)] * 3,
    }


def test_one_matrix_embeds_both_sides_and_projects(make_model):
    model = make_model()
    matrices = [weight for weight in model.weights if tuple(weight.shape) == (29, 16)]
    assert len(matrices) == 1
    assert model.source_embedding.embeddings is model.target_embedding.embeddings is matrices[0]


def test_without_sharing_target_and_projection_are_still_one_matrix(make_model, make_batch):
    model = make_model(share_embeddings=False, target_vocabulary_size=31)
    assert len(model.weights) == len(make_model().weights) + 1
    assert [tuple(w.shape) for w in model.weights if w.shape[0] in (29, 31)] == [(29, 16), (31, 16)]
    batch = make_batch()
    before = numpy(model(batch))
    assert before.shape[-1] == 31
    model.target_embedding.embeddings.assign(numpy(model.target_embedding.embeddings) * np.eye(31)[30][:, None])
    # Only row 30 of the matrix is left: every other logit is 0, and so is every embedded target token.
    after = numpy(model(batch))
    assert (after[..., :30] == 0).all()
    assert (np.abs(after[..., 30]) > 0).all()


def test_weights_of_different_sublayers_differ():
    """An initializer object that two sublayers share would give both the same values."""
    model = kt.Transformer(29, None, 2, 2, d_model=16, num_heads=2, d_ff=24, seed=3)
    model.build()
    values = [numpy(weight) for weight in model.weights if weight.path.endswith("kernel")]
    for index, value in enumerate(values):
        assert not any(np.array_equal(value, other) for other in values[index + 1 :])


@pytest.mark.parametrize("name", ["tiny", "small", "base", "big"])
def test_presets_are_the_constructors_arguments(name):
    sizes = {
        "tiny": (4, 4, 128, 4, 256, 0.1),
        "small": (3, 3, 256, 4, 1024, 0.1),
        "base": (6, 6, 512, 8, 2048, 0.1),
        "big": (6, 6, 1024, 16, 4096, 0.3),
    }[name]
    config = kt.Transformer.from_preset(name, source_vocabulary_size=8000).get_config()
    names = ("num_encoder_layers", "num_decoder_layers", "d_model", "num_heads", "d_ff", "dropout")
    assert tuple(config[name] for name in names) == sizes


def test_overrides_of_a_preset():
    config = kt.Transformer.from_preset(
        "small", 900, target_vocabulary_size=800, share_embeddings=False, dropout=0.2, d_ff=64
    ).get_config()
    assert (config["source_vocabulary_size"], config["target_vocabulary_size"]) == (900, 800)
    assert (config["dropout"], config["d_ff"], config["d_model"]) == (0.2, 64, 256)


def test_the_default_is_the_base_model():
    base = kt.Transformer.from_preset("base", source_vocabulary_size=900, name="base")
    assert kt.Transformer(900, name="base").get_config() == base.get_config()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"target_vocabulary_size": 31}, "share_embeddings.*source_vocabulary_size=29.*target_vocabulary_size=31"),
        ({"source_vocabulary_size": 0}, "source_vocabulary_size=0"),
        ({"target_vocabulary_size": -1, "share_embeddings": False}, "target_vocabulary_size=-1"),
        ({"source_vocabulary_size": 29.0}, "source_vocabulary_size=29.0"),
        ({"d_model": 15, "num_heads": 3}, "d_model=15"),
        ({"d_model": 0}, "d_model=0"),
        ({"num_heads": 3}, "d_model=16, num_heads=3"),
        ({"num_heads": 3, "key_dim": 4}, "d_model=16, num_heads=3"),
        ({"num_heads": 0}, "num_heads=0"),
        ({"d_ff": 0}, "d_ff=0"),
        ({"key_dim": 0}, "key_dim=0"),
        ({"value_dim": -2}, "value_dim=-2"),
        ({"num_encoder_layers": 0}, "num_encoder_layers=0"),
        ({"num_decoder_layers": "2"}, "num_decoder_layers='2'"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"dropout": -0.1}, "dropout=-0.1"),
        ({"attention_dropout": 2}, "attention_dropout=2"),
        ({"num_head": 2}, "num_head"),
        ({"layers": 2}, "layers"),
    ],
)
def test_wrong_arguments_are_named_with_their_value(arguments, named):
    sizes = {"source_vocabulary_size": 29, "d_model": 16, "num_heads": 2, "d_ff": 24}
    with pytest.raises((ValueError, TypeError), match=named):
        kt.Transformer(**{**sizes, **arguments})


def test_unknown_preset_lists_the_presets():
    with pytest.raises(ValueError, match=r"tiny, small, base, big.*'huge'"):
        kt.Transformer.from_preset("huge", source_vocabulary_size=29)


@pytest.mark.parametrize(
    "inputs",
    [
        {"encoder_token_ids": np.ones((1, 3))},
        {"encoder_tokens": np.ones((1, 3)), "decoder_tokens": np.ones((1, 3))},
        (np.ones((1, 3)), np.ones((1, 3))),
        np.ones((1, 3)),
    ],
)
def test_wrong_inputs_say_which_are_expected(make_model, inputs):
    with pytest.raises(ValueError, match="`encoder_token_ids` and `decoder_token_ids`"):
        make_model()(inputs)


def test_ids_of_another_rank_are_refused(make_model):
    with pytest.raises(ValueError, match="rank 2"):
        make_model()({"encoder_token_ids": np.ones((3,)), "decoder_token_ids": np.ones((1, 3))})


@pytest.mark.parametrize("activation", ["relu", "gelu", keras.activations.silu])
def test_config_is_the_arguments_in_plain_values(activation):
    options = {"d_model": 16, "num_heads": 2, "d_ff": 24, "activation": activation, "seed": 5, "name": "translator"}
    model = kt.Transformer(29, **options)
    config = model.get_config()
    arguments = set(kt.Transformer.__init__.__annotations__) - {"kwargs", "return"}
    assert set(config) - {"name", "dtype", "trainable"} == arguments
    own = {name: config[name] for name in arguments}
    assert json.loads(json.dumps(own)) == own
    assert own["key_dim"] is None
    again = kt.Transformer.from_config(config)
    assert again.get_config() == config
    assert again.name == "translator"


def test_works_inside_a_functional_model(make_model, make_batch):
    model = make_model()
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name) for name in ("encoder_token_ids", "decoder_token_ids")
    }
    functional = keras.Model(inputs, keras.ops.softmax(model(inputs)))
    expected = keras.ops.softmax(model(make_batch()))
    np.testing.assert_allclose(numpy(functional(make_batch())), numpy(expected), atol=1e-6)
    assert functional.count_params() == model.count_params()
