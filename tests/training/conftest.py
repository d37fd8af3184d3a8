"""A tiny model and batches with padding, filler rows and another number of real tokens in each."""

import signal

import keras
import numpy as np
import pytest

import keras_transformer as kt

VOCABULARY = 19


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(1)


@pytest.fixture(autouse=True)
def _no_handler_is_left():
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture
def make_model():
    """`make_model(optimizer, jit_compile, run_eagerly, **options)`: a tiny compiled Transformer."""

    def make(optimizer="sgd", jit_compile=False, run_eagerly=False, **options):
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24}
        model = kt.Transformer(VOCABULARY, **{**sizes, "dropout": 0.0, **options})
        model.build()
        model.compile(
            optimizer,
            loss=kt.SmoothedCrossentropy(0.1),
            weighted_metrics=[kt.TokenAccuracy(), kt.Perplexity()],
            jit_compile=jit_compile,
            run_eagerly=run_eagerly,
        )
        return model

    return make


@pytest.fixture
def uneven_batches():
    """Four batches of one shape: 20, 3, 0 and 9 real tokens; the missing rows are padding that weighs nothing."""
    rng = np.random.default_rng(2)
    batches = []
    for lengths in ([5, 5, 5, 5], [2, 1, 0, 0], [0, 0, 0, 0], [5, 3, 1, 0]):
        real = np.arange(5) < np.array(lengths)[:, None]
        source, target = (rng.integers(4, VOCABULARY, (4, 5)).astype("int32") * real for _ in range(2))
        decoder = np.concatenate([np.full((4, 1), 2), target[:, :-1]], 1).astype("int32") * real
        batches.append(({"encoder_token_ids": source, "decoder_token_ids": decoder}, target, np.float32(real)))
    return batches
