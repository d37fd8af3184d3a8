"""The examples in the docstrings of public names run as they stand."""

import doctest
import inspect

import keras
import numpy as np
import pytest

import keras_transformer as kt

PUBLIC = {name: getattr(kt, name) for name in kt.__all__ if not name.startswith("_")}
EXAMPLES = {
    name: examples
    for name, value in PUBLIC.items()
    if (examples := doctest.DocTestParser().get_examples(inspect.getdoc(value) or ""))
}


def test_there_are_examples():
    layers = {"MultiHeadAttention", "PositionalEmbedding", "FeedForward", "EncoderLayer", "DecoderLayer"}
    assert layers | {"Transformer", "Translator", "Tokenizer", "ParallelCorpus", "make_dataset"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name):
    names = {"np": np, "keras": keras, **PUBLIC}
    for example in EXAMPLES[name]:
        exec(compile(example.source, f"<docstring of {name}>", "single"), names)
