"""What every layer owes: building, saving, training, dtypes, and a config of its constructor's arguments."""

import inspect
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer
from keras_transformer import DecoderLayer, EncoderLayer, FeedForward, MultiHeadAttention, PositionalEmbedding
from keras_transformer.layers import ResidualConnection

B, T, S, N, D, D_S, D_FF, V = 2, 5, 7, 3, 12, 10, 11, 17


@dataclass
class Case:
    """A layer's class and arguments, none of them its default, and the shapes of what it is called on."""

    layer: type
    arguments: dict[str, Any]
    inputs: dict[str, tuple]
    input_dtype: str = "float"

    def make(self, **options):
        return self.layer(**{**self.arguments, **options})

    def data(self, rng, dtype="float32"):
        if self.input_dtype == "int32":
            return {name: rng.integers(0, V, shape, dtype="int32") for name, shape in self.inputs.items()}
        return {name: rng.normal(size=shape).astype(dtype) for name, shape in self.inputs.items()}

    def model(self, float_dtype="float32", **options):
        """A Functional model of this one layer, for any batch."""
        input_dtype = "int32" if self.input_dtype == "int32" else float_dtype
        inputs = {name: keras.Input(shape[1:], dtype=input_dtype, name=name) for name, shape in self.inputs.items()}
        return keras.Model(inputs, self.make(**options)(**inputs))


DROPOUT = {"dropout": 0.1, "seed": 3}
SUBLAYERS = {
    **DROPOUT,
    "num_heads": N,
    "d_ff": D_FF,
    "attention_dropout": 0.2,
    "activation": "gelu",
    "normalize_first": True,
    "key_dim": 4,
    "value_dim": 2,
    "kernel_initializer": "he_normal",
}
CASES = {
    case.layer.__name__: case
    for case in (
        Case(
            MultiHeadAttention,
            {**DROPOUT, "num_heads": N, "key_dim": 4, "value_dim": 2, "kernel_regularizer": "l2", "output_shape": 8},
            {"query": (B, T, D), "value": (B, S, D_S)},
        ),
        Case(PositionalEmbedding, {**DROPOUT, "vocabulary_size": V, "d_model": D}, {"token_ids": (B, T)}, "int32"),
        Case(FeedForward, {**DROPOUT, "d_ff": D_FF, "activation": "tanh"}, {"sequence": (B, T, D)}),
        Case(ResidualConnection, {**DROPOUT, "normalize_first": True}, {"sequence": (B, T, D), "output": (B, T, D)}),
        Case(EncoderLayer, SUBLAYERS, {"encoder_sequence": (B, S, D)}),
        Case(DecoderLayer, SUBLAYERS, {"decoder_sequence": (B, T, D), "encoder_sequence": (B, S, D_S)}),
    )
}
# `ResidualConnection.call` uses its norm in post-norm alone; Keras cannot add float64 regularizers to its float32 loss.
TRAINED = {"ResidualConnection": {"normalize_first": False}, "MultiHeadAttention": {"kernel_regularizer": None}}

every_layer = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_layer
def test_building_makes_the_weights_that_a_call_makes(case, rng):
    built, called, symbolic = (case.make(name="layer") for _ in range(3))
    built.build(**{f"{name}_shape": (None, None, *shape[2:]) for name, shape in case.inputs.items()})
    called(**case.data(rng))
    symbolic(**{name: keras.KerasTensor(shape, case.data(rng)[name].dtype) for name, shape in case.inputs.items()})

    weights = [(weight.path, weight.shape) for weight in called.weights]
    assert [(weight.path, weight.shape) for weight in built.weights] == weights
    assert [(weight.path, weight.shape) for weight in symbolic.weights] == weights
    assert len(built.variables) == len(called.variables)  # the seeds' states too


@every_layer
def test_batch_and_lengths_may_be_known_only_in_the_graph(case, rng):
    layer, data = case.make(), case.data(rng)
    expected = layer(**data)
    unknown = {name: tf.TensorSpec((None, None, *x.shape[2:]), x.dtype) for name, x in data.items()}

    output = tf.function(lambda inputs: layer(**inputs), input_signature=[unknown])(data)

    np.testing.assert_allclose(output, expected, atol=1e-5)


@every_layer
def test_the_config_holds_the_constructors_arguments_and_plain_values(case):
    layer = case.make()
    config = layer.get_config()

    arguments = set(inspect.signature(case.layer.__init__).parameters) - {"self", "kwargs"}
    assert set(config) == arguments | {"name", "trainable", "dtype"}
    for name in case.arguments.keys() - {"kernel_regularizer", "kernel_initializer"}:
        assert config[name] == case.arguments[name]
    assert case.layer.from_config(json.loads(json.dumps(config))).get_config() == config


@every_layer
def test_a_saved_layer_gives_the_same_outputs_bit_for_bit(case, rng, randomize, tmp_path):
    model, data = randomize(case.model()), case.data(rng)
    model.save(tmp_path / "model.keras")

    loaded = keras.saving.load_model(tmp_path / "model.keras")

    assert len(loaded.weights) == len(model.weights)
    np.testing.assert_array_equal(loaded(data), model(data))


LOAD_IN_A_FRESH_PROCESS = """
import pathlib, sys
import keras, numpy, keras_transformer

for path in pathlib.Path(sys.argv[1]).glob("*.keras"):
    model = keras.saving.load_model(path)
    output = model(dict(numpy.load(path.with_suffix(".npz"))))
    numpy.savez(path.with_suffix(".loaded.npz"), output=output, weights=len(model.weights))
"""


@pytest.mark.slow
def test_saved_layers_load_in_a_fresh_process_bit_for_bit(rng, randomize, tmp_path):
    # One process for all layers: most of its time goes into importing TensorFlow.
    expected = {}
    for name, case in CASES.items():
        model, data = randomize(case.model()), case.data(rng)
        model.save(tmp_path / f"{name}.keras")
        np.savez(tmp_path / f"{name}.npz", **data)
        expected[name] = np.asarray(model(data)), len(model.weights)

    root = Path(keras_transformer.__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", LOAD_IN_A_FRESH_PROCESS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
    )

    for name, (output, weights) in expected.items():
        loaded = np.load(tmp_path / f"{name}.loaded.npz")
        assert loaded["weights"] == weights, name
        np.testing.assert_array_equal(loaded["output"], output, err_msg=name)


def one_step(case, model, rng, dtype, **options):
    """Fits one batch; returns the names of the weights that did not move, and checks that all are finite."""
    data, before = case.data(rng, dtype), model.get_weights()
    target = rng.normal(size=model(data).shape).astype(dtype)
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", **options)
    history = model.fit(data, target, verbose=0)

    assert np.isfinite(history.history["loss"]).all()
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    return {
        "/".join(weight.path.split("/")[-2:])
        for weight, old in zip(model.weights, before, strict=True)
        if np.array_equal(weight, old)
    }


@every_layer
def test_one_step_of_fit_with_xla_changes_every_weight(case, rng):
    model = case.model(**TRAINED.get(case.layer.__name__, {}))

    unchanged = one_step(case, model, rng, "float32", jit_compile=True)

    assert model.jit_compile
    assert unchanged <= {"key/bias"}  # shifts all scores of a query alike: its gradient is 0 but for rounding


@pytest.mark.parametrize(
    ("policy", "compute_dtype"),
    [("mixed_float16", "float16"), ("mixed_bfloat16", "bfloat16"), ("float64", "float64")],
)
@every_layer
def test_one_step_under_every_dtype_policy(case, rng, policy, compute_dtype):
    dtype = "float64" if policy == "float64" else "float32"
    model = case.model(dtype, dtype=policy, **TRAINED.get(case.layer.__name__, {}))

    unchanged = one_step(case, model, rng, dtype)

    assert unchanged <= {"key/bias"}
    assert model.output.dtype == compute_dtype
    assert keras.backend.standardize_dtype(model(case.data(rng, dtype)).dtype) == compute_dtype
    assert {weight.dtype for weight in model.weights} == {dtype}
    layer = model.layers[-1]
    assert {sublayer.dtype_policy.name for sublayer in layer._flatten_layers()} == {policy}


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
@pytest.mark.parametrize("name", ["MultiHeadAttention", "EncoderLayer", "DecoderLayer"])
def test_attention_weights_are_float32_or_better(name, policy, rng):
    dtype = "float64" if policy == "float64" else "float32"
    _, *all_scores = CASES[name].make(dtype=policy)(**CASES[name].data(rng, dtype), return_attention_scores=True)

    assert {scores.dtype.name for scores in all_scores} == {dtype}
    for scores in all_scores:
        np.testing.assert_allclose(np.asarray(scores).sum(axis=-1), 1, rtol=1e-6)
