"""Files line by line, and the command line: one line in, one line out, and on from where it was interrupted."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import keras_transformer as kt
from keras_transformer.serving import translate_file as module
from keras_transformer.serving.hypothesis import Hypothesis
from keras_transformer.serving.translate_file import translate_file

ROOT = Path(kt.__file__).parents[1]
COMMAND = [sys.executable, "-m", "keras_transformer.serving.command_line", "translate"]


@pytest.fixture
def source(tmp_path, sources):
    path = tmp_path / "source.txt"
    path.write_text("\n".join([*sources[:40], "", "  ", *sources[40:70]]), encoding="utf-8")  # no last newline
    return path


@pytest.fixture
def expected(source, greedy_translator):
    return greedy_translator(source.read_text(encoding="utf-8").split("\n"))


def lines(path):
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text.split("\n")[:-1]


@pytest.mark.parametrize("at_once", [7, 256])
def test_a_line_for_a_line(greedy_translator, source, expected, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(module, "LINES_AT_ONCE", at_once)
    assert greedy_translator.translate_file(source, tmp_path / "out.txt") == 72
    assert lines(tmp_path / "out.txt") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "source.txt"]


def test_streams_nbest_and_scores(translator, sources):
    target = io.BytesIO()
    assert translate_file(translator, io.BytesIO("\n".join(sources[:5]).encode()), target, 2, scores=True) == 5
    rows = [line.split("\t") for line in target.getvalue().decode().splitlines()]
    best = [h for row in translator.translate(sources[:5], num_hypotheses=2) for h in row]
    assert [text for _, text in rows] == [h.text for h in best]
    assert [float(score) for score, _ in rows] == pytest.approx([h.score for h in best], abs=1e-4)


def test_a_line_ends_at_a_newline_alone(greedy_translator):
    """U+2028, form feed and carriage return stand in a line; bytes that are no UTF-8 do no harm."""
    target = io.BytesIO()
    source = io.BytesIO("o gato\u2028dorme\n\x0c\r\n".encode() + b"\xff\xfe\n")
    assert translate_file(greedy_translator, source, target) == 3
    assert target.getvalue().count(b"\n") == 3


class Verbose:
    """Generates line breaks, which a model of bytes can do."""

    def translate(self, texts, num_hypotheses=1, batch_size=32):
        return [[Hypothesis(f"{text}\n\nend", -1.0, False)] for text in texts]


def test_what_is_generated_stays_one_line():
    target = io.BytesIO()
    translate_file(Verbose(), io.BytesIO(b"a\nb\n"), target)
    assert target.getvalue() == b"a  end\nb  end\n"


class Failing:
    """Fails after so many calls, as a full disk or a kill would."""

    def __init__(self, translator, calls):
        self.translator, self.calls, self.seen = translator, calls, []

    def translate(self, texts, **options):
        if not self.calls:
            raise KeyboardInterrupt
        self.calls -= 1
        self.seen += texts
        return self.translator.translate(texts, **options)


@pytest.mark.parametrize("cut", [0, 5])
def test_an_interrupted_file_goes_on(greedy_translator, source, expected, tmp_path, monkeypatch, cut):
    monkeypatch.setattr(module, "LINES_AT_ONCE", 10)
    target = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate_file(Failing(greedy_translator, 3), source, target)
    assert not target.exists()
    partial = tmp_path / "out.txt.partial"
    os.truncate(partial, partial.stat().st_size - cut)  # the last line half written
    again = Failing(greedy_translator, 99)
    assert translate_file(again, source, target) == 72
    assert lines(target) == expected
    assert len(again.seen) == 72 - (30 if cut == 0 else 29)


def test_another_source_or_form_does_not_go_on(greedy_translator, source, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LINES_AT_ONCE", 10)
    target = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate_file(Failing(greedy_translator, 1), source, target)
    with pytest.raises(ValueError, match=r"out.txt.partial was begun with scores=False, not scores=True: remove it"):
        translate_file(greedy_translator, source, target, scores=True)


def command(*arguments, text="", **options):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=text.encode(),
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        check=False,
        **options,
    )


@pytest.mark.slow
def test_the_command_translates_with_a_run_a_translator_and_an_export(greedy_translator, export, translator, tmp_path):
    greedy_translator.save(tmp_path / "run" / "translator")
    text = "o gato dorme\n\num livro é muito bom\n"
    for directory in (tmp_path / "run", tmp_path / "run" / "translator", export.parent):
        process = command(directory, text=text)
        assert process.returncode == 0, process.stderr
        assert process.stdout.decode() == "the cat sleeps\n\na book is very good\n"
    process = command(export, "--nbest", "2", "--scores", text="o gato dorme\n")
    assert [line.split("\t")[1] for line in process.stdout.decode().splitlines()] == [
        h.text for h in translator.translate(["o gato dorme"], num_hypotheses=2)[0]
    ]


@pytest.mark.slow
def test_the_commands_errors_are_one_line(export, tmp_path):
    for arguments, message in (
        ((tmp_path / "nowhere",), "neither a run or saved translator (translator.json) nor an export"),
        ((export, "--num-beams", "2"), "its search is fixed; leave out --num-beams and --jit-compile"),
        ((export, tmp_path / "no.txt"), "no.txt: no such file"),
    ):
        process = command(*arguments)
        assert process.returncode == 1
        last = process.stderr.decode().splitlines()[-1]
        assert last.startswith("keras-transformer: ")
        assert message in last
    process = command(export, "--nbest", "0")
    assert process.returncode == 2
    assert b"must be a positive integer, not '0'" in process.stderr


@pytest.mark.slow
def test_a_killed_command_goes_on(greedy_translator, sources, tmp_path):
    greedy_translator.save(tmp_path / "translator")
    source, target = tmp_path / "source.txt", tmp_path / "out.txt"
    source.write_text("\n".join(sources * 12) + "\n", encoding="utf-8")
    arguments = [*COMMAND, str(tmp_path / "translator"), str(source), "--output", str(target), "--batch-size", "4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL) as process:
        partial = tmp_path / "out.txt.partial"
        while not (partial.exists() and partial.stat().st_size):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert not target.exists()
    assert subprocess.run(arguments, env=environment, stderr=subprocess.DEVNULL, check=True).returncode == 0
    assert lines(target) == greedy_translator(sources) * 12
