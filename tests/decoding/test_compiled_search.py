"""The same search eager, in a graph, under XLA and on JAX."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.decoding import beam_search

BEAMS = [1, 4]
ON_JAX = """
import sys
import keras
import numpy as np
assert keras.config.backend() == "jax"
sys.path.insert(0, sys.argv[2])
import conftest as language
from keras_transformer.decoding import beam_search
assert "tensorflow" not in sys.modules
import jax

folder, results = sys.argv[1], {}
with np.load(folder + "/in.npz") as file:
    tables, max_lengths = file["tables"], file["max_lengths"]
for num_beams in (1, 4):
    def search(tables, max_lengths):
        return beam_search(
            language.step, language.state(tables), max_lengths, tables.shape[1], num_beams, num_hypotheses=num_beams
        )
    for name, function in (("eager", search), ("jit", jax.jit(search))):
        ids, scores = function(keras.ops.convert_to_tensor(tables), max_lengths)
        results[f"{name}_ids_{num_beams}"], results[f"{name}_scores_{num_beams}"] = ids, scores
np.savez(folder + "/out.npz", **results)
"""


@pytest.fixture
def make_search(language):
    def make(num_beams, static_max_length=None):
        def search(tables, max_lengths, max_length=static_max_length):
            return beam_search(
                language.step,
                language.state(tables),
                max_lengths,
                max_length,
                num_beams=num_beams,
                num_hypotheses=num_beams,
            )

        return search

    return make


@pytest.fixture
def batches(language):
    return [
        (language.random_tables(seed, rows, longest, vocabulary_size=7), np.int32(max_lengths))
        for seed, rows, longest, max_lengths in [(1, 3, 9, [9, 4, 1]), (2, 1, 5, [5]), (3, 4, 12, [12, 12, 3, 8])]
    ]


def assert_same(left, right):
    np.testing.assert_array_equal(left[0], right[0])
    np.testing.assert_allclose(left[1], right[1], atol=1e-5)


@pytest.mark.parametrize("num_beams", BEAMS)
def test_one_trace_serves_every_shape(make_search, batches, num_beams):
    signature = [
        tf.TensorSpec([None, None, 7, 7, 7]),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([], tf.int32),
    ]
    search = make_search(num_beams)
    compiled = tf.function(search, input_signature=signature, autograph=False)
    for tables, max_lengths in batches:
        inputs = tf.constant(tables), tf.constant(max_lengths), tf.constant(tables.shape[1])
        assert_same(compiled(*inputs), search(*inputs))
    assert compiled.experimental_get_tracing_count() == 1
    nothing = compiled(tf.zeros([0, 6, 7, 7, 7]), tf.zeros([0], tf.int32), tf.constant(6))
    assert nothing[0].shape == (0, num_beams, 6)


@pytest.mark.parametrize("num_beams", BEAMS)
def test_under_xla(make_search, batches, num_beams):
    for tables, max_lengths in batches[:2]:
        search = make_search(num_beams, static_max_length=tables.shape[1])
        compiled = tf.function(search, jit_compile=True, autograph=False)
        assert_same(
            compiled(tf.constant(tables), tf.constant(max_lengths)),
            search(tf.constant(tables), tf.constant(max_lengths)),
        )


@pytest.mark.slow
def test_on_jax(make_search, batches, tmp_path):
    tables, max_lengths = batches[2]
    np.savez(tmp_path / "in.npz", tables=tables, max_lengths=max_lengths)
    subprocess.run(
        [sys.executable, "-c", ON_JAX, str(tmp_path), str(Path(__file__).parent)],
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(Path(kt.__file__).parents[1])},
        check=True,
    )
    with np.load(tmp_path / "out.npz") as results:
        for num_beams in BEAMS:
            expected = make_search(num_beams)(tf.constant(tables), tf.constant(max_lengths), tables.shape[1])
            for name in ("eager", "jit"):
                assert_same([results[f"{name}_{part}_{num_beams}"] for part in ("ids", "scores")], expected)
