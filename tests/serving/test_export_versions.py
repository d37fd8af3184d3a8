"""Which directory an export goes to, what it must not demand, and what an interruption leaves."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import keras_transformer as kt

SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
EXPORT = """
import sys
import keras_transformer as kt
translator = kt.Translator.load(sys.argv[1])
print("begins", flush=True)
translator.export(sys.argv[2])
"""


@pytest.fixture(scope="module")
def small(tokenizers):
    """The least there is to export."""
    return kt.Translator(kt.Transformer(380, 360, share_embeddings=False, **SIZES), *tokenizers, num_beams=1)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.slow
def test_versions_count_up_and_nothing_is_overwritten(small, tmp_path, caplog):
    (tmp_path / "notes").mkdir()
    assert small.export(str(tmp_path), version=9) == tmp_path / "9"
    assert small.export(tmp_path, max_batch_size=4) == tmp_path / "10"  # after 9, as numbers
    before = (tmp_path / "9" / "saved_model.pb").stat()
    with pytest.raises(FileExistsError, match="9 exists already"):
        small.export(tmp_path, version=9)
    assert (tmp_path / "9" / "saved_model.pb").stat() == before
    assert names(tmp_path) == ["10", "9", "batching_params.pbtxt", "notes"]
    batching = tmp_path / "batching_params.pbtxt"
    assert "max_batch_size { value: 4 }" in batching.read_text(encoding="utf-8")
    tuned = batching.read_text(encoding="utf-8").replace("value: 5000", "value: 900")
    batching.write_text(tuned, encoding="utf-8")
    small.export(tmp_path)
    assert batching.read_text(encoding="utf-8") == tuned
    assert "batching_params.pbtxt was changed by hand and stays as it is" in caplog.text


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1"])
def test_a_version_is_a_positive_integer(small, tmp_path, version):
    with pytest.raises(ValueError, match=rf"`version` must be a positive integer. Received: version={version!r}"):
        small.export(tmp_path, version=version)
    assert names(tmp_path) == []


def must_compile(export):
    """Every function or node of a SavedModel that demands XLA."""
    saved = SavedModel.FromString((export / "saved_model.pb").read_bytes())
    found = []
    for graph in (meta.graph_def for meta in saved.meta_graphs):
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        assert len(nodes) > 100
        for thing in [*graph.library.function, *nodes]:
            if any(thing.attr[name].b for name in ("_XlaMustCompile", "_XlaCompile") if name in thing.attr):
                found.append(thing)
    return found


@pytest.mark.slow
def test_nothing_in_the_graph_demands_xla(train, tokenizers, tmp_path):
    trained_with_xla = train(epochs=1, jit_compile=True)
    assert trained_with_xla.jit_compile
    assert must_compile(kt.Translator(trained_with_xla, *tokenizers).export(tmp_path)) == []


def test_the_search_for_xla_finds_it(tmp_path):
    module = tf.Module()
    inner = tf.function(lambda x: x + 1, jit_compile=True)
    specs = [tf.TensorSpec([None])] * 60
    module.f = tf.function(lambda *xs: [inner(x) for x in xs], input_signature=specs)
    tf.saved_model.save(module, str(tmp_path))
    assert must_compile(tmp_path)


class Modern(kt.Translator):
    """Its graph has an operation that TensorFlow 2.20 brought."""

    def translate_batch(self, texts, num_hypotheses=1):
        tf.raw_ops.DecodeWebP(contents=tf.constant(""))
        return super().translate_batch(texts, num_hypotheses)


class Compiling(kt.Translator):
    def join(self, translations, scores, sources):
        scores = tf.function(lambda x: x + 0.0, jit_compile=True)(scores)
        return super().join(translations, scores, sources)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            Modern,
            r"TensorFlow Serving 2\.19 cannot run this export: DecodeWebP: an operation that server 2\.19 does not",
        ),
        (Compiling, r"The graph demands XLA, which TensorFlow Serving has not: _XlaMustCompile"),
    ],
)
def test_what_the_server_cannot_run_is_named_and_nothing_is_left(small, tmp_path, kind, message):
    wanting = kind(small.model, small.source_tokenizer, small.target_tokenizer, num_beams=1)
    with pytest.raises(RuntimeError, match=message):
        wanting.export(tmp_path, target_server="2.19")
    assert names(tmp_path) == []


@pytest.mark.slow
def test_half_precision_and_xla_do_not_stand_in_the_way(translator, tmp_path):
    """The server runs the plain graph, so that is what the export is compared with; and all settings go along."""
    settings = {"num_beams": 2, "no_repeat_ngram_size": 2, "coverage_penalty": 0.2, "min_target_length": 3}
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    half = kt.Translator(translator.model, *tokenizers, **settings, jit_compile=True).astype("bfloat16")
    assert half.jit_compile
    export = half.export(tmp_path)
    information = json.loads((export / "assets.extra" / "model_info.json").read_text(encoding="utf-8"))
    assert {**half.settings, **settings} == half.settings == information["search"]


class Forgetful(kt.Translator):
    """Translates otherwise in Python than in the graph."""

    def translate(self, *arguments, **options):
        return [
            [best._replace(text=best.text + "!") for best in row] for row in super().translate(*arguments, **options)
        ]


class Drifting(kt.Translator):
    def translate(self, *arguments, **options):
        return [
            [best._replace(score=best.score + 0.1) for best in row] for row in super().translate(*arguments, **options)
        ]


@pytest.mark.parametrize("kind", [Forgetful, Drifting])
def test_an_export_that_translates_otherwise_does_not_appear(small, tmp_path, kind):
    wrong = kind(small.model, small.source_tokenizer, small.target_tokenizer, num_beams=1)
    with pytest.raises(RuntimeError, match="The export translates '' otherwise than the translator"):
        wrong.export(tmp_path)
    assert names(tmp_path) == []


@pytest.mark.slow
def test_the_callers_sentences_are_checked_too_in_batches_of_like_length(small, tmp_path):
    """In half precision a score depends on the batch's shape and order: both sides must get the same."""
    asked = []

    class WrongOfCats(kt.Translator):
        def translate(self, texts, *arguments, **options):
            asked.append(texts)
            rows = super().translate(texts, *arguments, **options)
            return [
                [best._replace(text="dog") for best in row] if text == "gato" else row
                for text, row in zip(texts, rows, strict=True)
            ]

    wrong = WrongOfCats(small.model, small.source_tokenizer, small.target_tokenizer, num_beams=1)
    with pytest.raises(RuntimeError, match="The export translates 'gato' otherwise"):
        wrong.export(tmp_path, warmup=["o", "gato"])
    assert names(tmp_path) == []
    assert [len(texts) for texts in asked] == [8] * 6 + [2]
    lengths = [len(ids) for texts in asked for ids in small.source_tokenizer.tokenize(texts, add_end=True).numpy()]
    assert lengths == sorted(lengths)


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [1, 2])
def test_weights_that_are_no_numbers_are_not_exported(tokenizers, tmp_path, num_beams):
    model = kt.Transformer(380, 360, share_embeddings=False, **SIZES)
    model.build()
    for weight in model.weights:
        weight.assign(np.full(weight.shape, np.nan))
    with pytest.raises(RuntimeError, match=r"The model finds no sentence for '': are its weights numbers\?"):
        kt.Translator(model, *tokenizers, num_beams=num_beams).export(tmp_path)
    assert names(tmp_path) == []


@pytest.mark.slow
def test_a_killed_export_leaves_no_version(small, tmp_path):
    small.save(tmp_path / "translator")
    base = tmp_path / "export"
    process = subprocess.Popen(
        [sys.executable, "-c", EXPORT, str(tmp_path / "translator"), str(base)],
        env={"PYTHONPATH": str(Path(kt.__file__).parents[1]), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout.readline() == b"begins\n"
        while not list(base.glob(".*/saved_model.pb")):  # mid-way: written and not yet checked
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not [name for name in names(base) if not name.startswith(".")]
    assert small.export(base) == base / "1"
