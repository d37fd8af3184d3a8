"""Files of a model, read by another process."""

import json

import keras
import numpy as np
import pytest

import keras_transformer as kt

LOAD = """
import sys
import numpy as np
import keras, keras_transformer

model = keras.saving.load_model(sys.argv[1])
batch = dict(np.load(sys.argv[2]))
logits, scores = model(batch, return_attention_scores=True)
np.savez(sys.argv[3], logits=logits, cross=scores["cross"][-1], dropped=model(batch, training=True))
matrices = [weight.path for weight in model.weights if "embeddings" in weight.path]
print(len(model.weights), model.count_params(), model.name, model.dtype_policy.name, len(matrices))
"""


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def seeds_of(model):
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def training_batches(count, rng):
    """`count` batches of one shape, with padding and its weights."""
    for _ in range(count):
        source, target = (rng.integers(4, 29, (4, 6)).astype("int32") for _ in range(2))
        for row, length in enumerate(rng.integers(2, 7, 4)):
            source[row, length:] = target[row, length:] = 0
        inputs = {"encoder_token_ids": source, "decoder_token_ids": np.roll(target, 1, axis=1)}
        yield inputs, target, np.float32(target != 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.1, "dtype": "mixed_bfloat16", "normalize_first": True, "name": "translator"},
        {
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "key_dim": 3,
            "value_dim": 5,
            "activation": "gelu",
            "share_embeddings": False,
            "target_vocabulary_size": 31,
        },
    ],
)
def test_a_fresh_process_loads_bit_for_bit(make_model, make_batch, run_python, tmp_path, options):
    model = make_model(**options)
    batch = make_batch()
    model(batch, training=True)  # the seeds have moved on
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "batch.npz", **batch)
    matrices = 1 if options.get("share_embeddings", True) else 2

    printed = run_python(LOAD, tmp_path / "model.keras", tmp_path / "batch.npz", tmp_path / "out.npz")
    expected = (len(model.weights), model.count_params(), model.name, model.dtype_policy.name, matrices)
    assert printed.split() == [str(value) for value in expected]
    logits, scores = model(batch, return_attention_scores=True)
    with np.load(tmp_path / "out.npz") as loaded:
        np.testing.assert_array_equal(loaded["logits"], numpy(logits))
        np.testing.assert_array_equal(loaded["cross"], numpy(scores["cross"][-1]))
        np.testing.assert_array_equal(loaded["dropped"], numpy(model(batch, training=True)))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_training_goes_on_as_if_uninterrupted(tmp_path, policy):
    rng = np.random.default_rng(8)
    batches = list(training_batches(13, rng))
    model = kt.Transformer(29, None, 1, 1, d_model=16, num_heads=2, d_ff=24, dropout=0.1, dtype=policy)
    model.compile(
        kt.transformer_optimizer(16, warmup_steps=5),
        loss=kt.SmoothedCrossentropy(),
        weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
    )
    for batch in batches[:10]:
        model.train_on_batch(*batch)
    model.save(tmp_path / "model.keras")
    model.reset_metrics()
    continued = [model.train_on_batch(*batch, return_dict=True) for batch in batches[10:]]

    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(numpy(loaded.optimizer.iterations)) == 10
    resumed = [loaded.train_on_batch(*batch, return_dict=True) for batch in batches[10:]]
    assert set(resumed[0]) == {"loss", "token_accuracy", "perplexity"}
    assert resumed == continued
    for ours, theirs in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(numpy(ours), numpy(theirs))
    for ours, theirs in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(numpy(ours), numpy(theirs))


def test_tied_weights_are_one_after_loading(make_model, make_batch, tmp_path):
    model = make_model()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == len(model.weights)
    matrices = [weight for weight in loaded.weights if tuple(weight.shape) == (29, 16)]
    assert len(matrices) == 1
    assert loaded.source_embedding.embeddings is loaded.target_embedding.embeddings is matrices[0]
    before = numpy(loaded(make_batch()))
    np.testing.assert_array_equal(before, numpy(model(make_batch())))
    # The one matrix embeds and projects: where it is 0, every logit is.
    matrices[0].assign(np.zeros((29, 16)))
    assert (numpy(loaded(make_batch())) == 0).all()


@pytest.mark.parametrize("seed", [None, 7])
def test_weight_files_keep_the_seeds(make_model, make_batch, tmp_path, seed):
    model, batch = make_model(dropout=0.1, attention_dropout=0.1, seed=seed), make_batch()
    for _ in range(3):
        model(batch, training=True)
    model.save_weights(tmp_path / "model.weights.h5")
    other = make_model(dropout=0.1, attention_dropout=0.1, seed=None if seed is None else 8)
    other.load_weights(tmp_path / "model.weights.h5")
    assert len(seeds_of(model)) > 2 * 4
    for ours, theirs in zip(seeds_of(other), seeds_of(model), strict=True):
        np.testing.assert_array_equal(numpy(ours), numpy(theirs))
        assert numpy(ours)[1] >= 3, "a state counts the draws"
    np.testing.assert_array_equal(numpy(other(batch, training=True)), numpy(model(batch, training=True)))


def test_seeds_of_different_dropouts_differ(make_model):
    for seed in (None, 7):
        model = make_model(dropout=0.1, attention_dropout=0.1, seed=seed)
        states = {tuple(numpy(state).tolist()) for state in seeds_of(model)}
        assert len(states) == len(seeds_of(model))


def small(base):
    """A model of somebody's own, with a dropout."""

    class Small(base):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(3, name="hidden")
            self.drop = keras.layers.Dropout(0.5, name="drop")
            self.scale = self.add_weight(shape=(3,), initializer="ones", name="scale")

        def build(self, input_shape):
            self.hidden.build(input_shape)

        def call(self, x, training=None):
            return self.drop(self.hidden(x) * self.scale, training=training)

    model = Small()
    model.build((None, 5))
    return model


def test_a_file_of_a_plain_keras_model_loads(tmp_path):
    plain, ours = small(keras.Model), small(kt.DistributedModel)
    plain.scale.assign([1.0, 2.0, 3.0])
    plain.save_weights(tmp_path / "plain.weights.h5")
    states = [numpy(state) for state in seeds_of(ours)]
    ours.load_weights(tmp_path / "plain.weights.h5")
    x = np.ones((2, 5), "float32")
    np.testing.assert_array_equal(numpy(ours(x)), numpy(plain(x)))
    for state, before in zip(seeds_of(ours), states, strict=True):
        np.testing.assert_array_equal(numpy(state), before)


def test_own_models_keep_their_seeds_and_own_weights(tmp_path):
    model, other = small(kt.DistributedModel), small(kt.DistributedModel)
    model.scale.assign([1.0, 2.0, 3.0])
    x = np.ones((2, 5), "float32")
    model(x, training=True)
    model.save_weights(tmp_path / "ours.weights.h5")
    other.load_weights(tmp_path / "ours.weights.h5")
    np.testing.assert_array_equal(numpy(other(x, training=True)), numpy(model(x, training=True)))


def test_a_file_of_fewer_layers_is_refused(make_model, tmp_path):
    make_model().save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match="could not be loaded"):
        make_model(num_decoder_layers=3).load_weights(tmp_path / "model.weights.h5")


def test_config_survives_the_file(make_model, tmp_path):
    model = make_model(dropout=0.3, attention_dropout=0.2, normalize_first=True, pad_token_id=5, seed=9, key_dim=3)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    own = {name: value for name, value in loaded.get_config().items() if name != "dtype"}
    assert json.loads(json.dumps(own)) == own
