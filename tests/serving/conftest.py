"""A translator that has learned a small language, with a tokenizer for each side, and fresh Python processes."""

import itertools
import os
import pathlib
import subprocess
import sys
import textwrap

import keras
import pytest
import tensorflow as tf

import keras_transformer as kt

ARTICLES = [("o", "the"), ("um", "a"), ("este", "this"), ("aquele", "that")]
NOUNS = [
    ("gato", "cat"),
    ("cão", "dog"),
    ("menino", "boy"),
    ("livro", "book"),
    ("avião", "plane"),
    ("jardim", "garden"),
    ("mercado", "market"),
    ("vizinho", "neighbour"),
    ("comboio", "train"),
    ("pássaro", "bird"),
]
VERBS = [
    ("dorme", "sleeps"),
    ("corre depressa", "runs fast"),
    ("parou aqui ontem", "stopped here yesterday"),
    ("é muito bom", "is very good"),
    ("não é meu", "is not mine"),
    ("está na rua", "is in the street"),
]


@pytest.fixture(scope="session")
def pairs():
    """240 Portuguese sentences and their translations."""
    return [
        tuple(" ".join(words) for words in zip(*choice, strict=True))
        for choice in itertools.product(ARTICLES, NOUNS, VERBS)
    ]


@pytest.fixture(scope="session")
def sources(pairs):
    return [source for source, _ in pairs]


@pytest.fixture(scope="session")
def tokenizers(pairs):
    """Two different models, of different sizes."""
    portuguese, english = zip(*pairs, strict=True)
    return (
        kt.Tokenizer.train(portuguese, vocabulary_size=380, model_type="bpe"),
        kt.Tokenizer.train(english, vocabulary_size=360, model_type="bpe"),
    )


@pytest.fixture(scope="session")
def train(pairs, tokenizers):
    """`train(epochs, **compile options)`: a small model that has seen the pairs so often."""

    def train(epochs, **options):
        keras.utils.set_random_seed(1)  # the same weights, whichever test comes first
        source_tokenizer, target_tokenizer = tokenizers
        model = kt.Transformer(
            source_tokenizer.vocabulary_size,
            target_tokenizer.vocabulary_size,
            num_encoder_layers=1,
            num_decoder_layers=2,
            d_model=32,
            num_heads=2,
            d_ff=64,
            dropout=0.0,
            share_embeddings=False,
        )
        model.compile(keras.optimizers.Adam(3e-3), loss=kt.SmoothedCrossentropy(), **options)
        fit(model, pairs, tokenizers, epochs)
        return model

    return train


def fit(model, pairs, tokenizers, epochs):
    portuguese, english = zip(*pairs, strict=True)
    encoder_token_ids = tokenizers[0].tokenize(portuguese, add_end=True).to_tensor()
    target_ids = tokenizers[1].tokenize(english, add_start=True, add_end=True).to_tensor()
    labels = target_ids[:, 1:]
    inputs = {"encoder_token_ids": encoder_token_ids, "decoder_token_ids": target_ids[:, :-1]}
    weights = tf.cast(labels != 0, "float32")
    model.fit(inputs, labels, sample_weight=weights, batch_size=24, epochs=epochs, verbose=0)


@pytest.fixture(scope="session")
def model(train):
    return train(epochs=8, jit_compile=False)


@pytest.fixture(scope="session")
def translator(model, tokenizers):
    return kt.Translator(model, *tokenizers)


@pytest.fixture(scope="session")
def export(translator, tmp_path_factory):
    """The directory of the exported translator's version."""
    return translator.export(tmp_path_factory.mktemp("export"), warmup=["o gato dorme"], metadata={"bleu": 97.0})


@pytest.fixture(scope="session")
def greedy_translator(model, tokenizers):
    return kt.Translator(model, *tokenizers, num_beams=1)


@pytest.fixture(scope="session")
def texts(sources):
    """64 texts of many lengths, some with characters that no training sentence had."""
    odd = ["", "São João 日本 😀", "o\ngato", "  o   gato  ", "ﬁm", "x" * 90]
    return odd + [
        " ".join(sources[index * 31 % 240] for index in range(start, start + 1 + start % 6)) for start in range(58)
    ]


@pytest.fixture(scope="session")
def run_python():
    """`run_python(code, *arguments)`: what the code prints in a fresh process."""

    def run(code, *arguments, **environment):
        root = str(pathlib.Path(kt.__file__).parents[1])
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": root, "PYTHONIOENCODING": "utf-8", **environment},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run
