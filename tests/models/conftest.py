"""Small models whose every weight is random, and fresh Python processes."""

import os
import pathlib
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

import keras_transformer as kt

SIZES = {
    "source_vocabulary_size": 29,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "d_model": 16,
    "num_heads": 2,
    "d_ff": 24,
    "dropout": 0.0,
}


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(1)


@pytest.fixture
def make_model():
    """`make_model(**options)`: a tiny built Transformer whose biases and norms are random too, not 0 and 1."""

    def make(**options):
        model = kt.Transformer(**{**SIZES, **options})
        model.build()
        rng = np.random.default_rng(2)
        for weight in model.weights:
            weight.assign(keras.ops.convert_to_numpy(weight) + rng.normal(0, 0.2, weight.shape))
        return model

    return make


@pytest.fixture
def make_batch():
    """`make_batch((source lengths), (target lengths))`: ids with another number of pads in each row."""

    def make(source_lengths=(7, 4, 2), target_lengths=(5, 3, 4), vocabulary_size=29, seed=3):
        rng = np.random.default_rng(seed)

        def ids(lengths):
            rows = np.zeros((len(lengths), max(lengths)), "int32")
            for row, length in zip(rows, lengths, strict=True):
                row[:length] = rng.integers(4, vocabulary_size, length)
            return rows

        return {"encoder_token_ids": ids(source_lengths), "decoder_token_ids": ids(target_lengths)}

    return make


@pytest.fixture
def run_python():
    """`run_python(code, **environment)`: what the code prints in a fresh process that warns of nothing."""

    def run(code, *arguments, **environment):
        root = str(pathlib.Path(kt.__file__).parents[1])
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": root, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run
