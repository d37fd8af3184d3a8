"""An export in TensorFlow's C library, without Python and without this package: `translate.c` on two TensorFlows."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

HERE = pathlib.Path(__file__).parent
ESCAPES = {r"\\": "\\", r"\t": "\t", r"\n": "\n"}


def fetch(version):
    """The directory with the unpacked wheels of an older TensorFlow and its TF-Text."""
    command = [sys.executable, str(HERE.parents[1] / "tools" / "serving_wheels.py"), version]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        print(result.stderr)
        pytest.fail(result.stderr.splitlines()[-1], pytrace=False)
    return pathlib.Path(result.stdout.strip())


@pytest.fixture(scope="module", params=["installed", "2.20"])
def wheels(request):
    """The directory that has `tensorflow` and `tensorflow_text`; an export is made with the installed one."""
    return pathlib.Path(tf.__file__).parents[1] if request.param == "installed" else fetch(request.param)


@pytest.fixture(scope="module")
def program(wheels, tmp_path_factory):
    """`translate.c`, built against TensorFlow's headers and libraries."""
    if shutil.which("gcc") is None:
        pytest.fail("gcc is missing: install a C compiler (Debian: apt install gcc libc6-dev)", pytrace=False)
    path = tmp_path_factory.mktemp("program") / "translate"
    tensorflow = wheels / "tensorflow"
    command = ["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{tensorflow / 'include'}"]
    command += [str(HERE / "translate.c"), "-o", str(path), f"-L{tensorflow}", f"-Wl,-rpath,{tensorflow}"]
    command += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return path


@pytest.fixture(scope="module")
def call(program, wheels, export, tmp_path_factory):
    """`call(signature, outputs, sentences)`: rows of what the program prints; it says what it loaded."""
    saved = SavedModel.FromString((export / "saved_model.pb").read_bytes())
    operations = wheels / "tensorflow_text" / "python" / "ops" / "_sentencepiece_tokenizer.so"
    libraries = tmp_path_factory.mktemp("libraries")

    def call(name, outputs, sentences):
        signature = saved.meta_graphs[0].signature_def[name]
        inputs = [tensor.name for tensor in signature.inputs.values()]
        result = subprocess.run(
            [
                program,
                export,
                operations,
                str(len(inputs)),
                *inputs,
                *(signature.outputs[each].name for each in outputs),
            ],
            input="".join(f"{sentence}\n" for sentence in sentences).encode(),
            env={"TF_CPP_MIN_LOG_LEVEL": "2", "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(libraries / "log")},
            capture_output=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr.decode()
        rows = [line.split("\t") for line in result.stdout.decode().split("\n")[:-1]]
        return [[re.sub(r"\\[\\tn]", lambda escape: ESCAPES[escape[0]], text) for text in row] for row in rows]

    call.libraries = libraries
    return call


@pytest.fixture(scope="module")
def translate(call):
    """`translate(sentences)`: translations, scores and flags."""

    def translate(sentences):
        rows = call("serving_default", ("translation", "score", "truncated"), sentences)
        return (
            [text for text, _, _ in rows],
            np.float32([score for _, score, _ in rows]),
            [truncated == "1" for _, _, truncated in rows],
        )

    return translate


def test_the_translators_own_texts_in_one_batch(translate, translator, texts):
    """32 sentences: nothing, accents, other scripts, an emoji, one word to a paragraph."""
    sentences = [text for text in texts if "\n" not in text][:32]
    assert "" in sentences
    assert "São João 日本 😀" in sentences
    assert len({len(sentence) for sentence in sentences}) > 20
    expected = [row[0] for row in translator.translate(sentences)]
    translations, scores, truncated = translate(sentences)
    assert translations == [hypothesis.text for hypothesis in expected]
    np.testing.assert_allclose(scores, [hypothesis.score for hypothesis in expected], rtol=0, atol=1e-4)
    assert truncated == [hypothesis.truncated for hypothesis in expected]


def test_what_is_too_long_and_no_sentence_at_all(translate):
    _, scores, truncated = translate([" ".join(["gato"] * 300), "o gato"])
    assert truncated == [True, False]
    assert np.all(np.isfinite(scores))
    assert translate([]) == ([], pytest.approx([]), [])


def test_the_other_signatures(call, translator):
    sentences = ["o gato dorme", "", "São João", "este avião não é meu"]
    expected = translator.translate(sentences, num_hypotheses=4)
    rows = call("nbest", ("translation", "score", "truncated"), sentences)
    assert [row[:4] for row in rows] == [[each.text for each in row] for row in expected]
    found = np.float32([row[4:8] for row in rows])
    np.testing.assert_allclose(found, [[each.score for each in row] for row in expected], rtol=1e-6, atol=1e-4)

    rows = call("score", ("log_probability", "num_tokens", "truncated"), sentences)  # each as its own translation
    scores, lengths = translator.score(sentences, sentences)
    np.testing.assert_allclose(np.float32([row[0] for row in rows]), scores, rtol=0, atol=1e-4)
    assert [row[1:] for row in rows] == [[str(length), "0"] for length in lengths]

    outputs = ("translation", "source_pieces", "target_pieces", "attention", "truncated")
    for sentence, hypotheses, row in zip(sentences, expected, call("attention", outputs, sentences), strict=True):
        assert row[0] == hypotheses[0].text
        maps = translator.attention(sentence)
        assert row[1].split(" ") == maps.source_pieces
        assert row[2].split(" ") == maps.target_pieces
        np.testing.assert_allclose(json.loads(row[3]), maps.cross, rtol=0, atol=1e-4)
        assert row[4] == "0"


def test_there_is_no_python_in_the_process(call, translate):
    translate(["o gato"])
    logs = "".join(path.read_text() for path in call.libraries.iterdir())
    loaded = {os.path.basename(name) for name in re.findall(r"file=(\S+)", logs)}
    assert {"libtensorflow_cc.so.2", "_sentencepiece_tokenizer.so"} <= loaded
    assert not [name for name in loaded if "python" in name.lower()]
