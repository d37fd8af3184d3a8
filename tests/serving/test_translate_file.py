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


class Echo:
    """Stands in for a translator: every text is its own translation."""

    def translate(self, texts, num_hypotheses=1, batch_size=32):
        return [[Hypothesis(text, 0.0, False)] * num_hypotheses for text in texts]


def test_no_more_is_read_than_what_is_written_soon():
    """So a file of any length takes the memory of some lines."""
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield b"o gato dorme\n"

    class Full(io.BytesIO):
        def writelines(self, new):
            new = list(new)
            assert read - self.getvalue().count(b"\n") == len(new) == module.LINES_AT_ONCE
            super().writelines(new)
            if read > 10 * module.LINES_AT_ONCE:
                raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        translate_file(Echo(), endless(), Full())
    assert read == 11 * module.LINES_AT_ONCE


def test_a_line_ends_at_a_newline_alone(greedy_translator):
    """U+2028, form feed and carriage return stand in a line."""
    target = io.BytesIO()
    source = io.BytesIO("o gato\u2028dorme\n\x0c\r\nmais\n".encode())
    assert translate_file(greedy_translator, source, target) == 3
    assert target.getvalue().count(b"\n") == 3


def test_a_byte_order_mark_is_no_text(greedy_translator):
    target = io.BytesIO()
    translate_file(greedy_translator, io.BytesIO("o gato dorme\n".encode("utf-8-sig")), target)
    assert target.getvalue() == b"the cat sleeps\n"


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
        self.fingerprint = translator.fingerprint

    def translate(self, texts, **options):
        if not self.calls:
            raise KeyboardInterrupt
        self.calls -= 1
        self.seen += texts
        return self.translator.translate(texts, **options)


@pytest.mark.parametrize("beyond", [b"", b"a line and a half\nmade twi"])
def test_an_interrupted_file_goes_on(greedy_translator, source, expected, tmp_path, monkeypatch, beyond):
    """Also where the journal was not yet written for the last lines."""
    monkeypatch.setattr(module, "LINES_AT_ONCE", 10)
    target = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate_file(Failing(greedy_translator, 3), source, target)
    assert not target.exists()
    with open(tmp_path / "out.txt.partial", "ab") as partial:
        partial.write(beyond)
    again = Failing(greedy_translator, 99)
    assert translate_file(again, source, target) == 72
    assert lines(target) == expected
    assert len(again.seen) == 72 - 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "source.txt"]


@pytest.fixture
def begun(greedy_translator, source, tmp_path, monkeypatch):
    """A target of which 20 lines are made."""
    monkeypatch.setattr(module, "LINES_AT_ONCE", 10)
    with pytest.raises(KeyboardInterrupt):
        translate_file(Failing(greedy_translator, 2), source, tmp_path / "out.txt")
    return tmp_path / "out.txt"


def test_what_was_begun_otherwise_does_not_go_on(greedy_translator, translator, source, begun):
    before = begun.with_name("out.txt.partial").read_bytes()
    for other, options, what in (
        (greedy_translator, {"scores": True}, r"scores=False, not True"),
        (translator, {"num_hypotheses": 2}, r"num_hypotheses=1, not 2"),
        (translator, {}, r"translator=\w{64}, not \w{64}"),
    ):
        with pytest.raises(
            ValueError, match=rf"^{begun}.partial was begun with {what}: remove it and out.txt.partial.j"
        ):
            translate_file(other, source, begun, **options)
    trained_on = kt.Translator(
        kt.Transformer.from_config(greedy_translator.model.get_config()), *tokenizers_of(translator)
    )
    with pytest.raises(ValueError, match="was begun with translator="):
        translate_file(trained_on, source, begun)  # the same model with other weights
    assert begun.with_name("out.txt.partial").read_bytes() == before


def tokenizers_of(translator):
    return translator.source_tokenizer, translator.target_tokenizer


@pytest.mark.parametrize("change", ["another line", "fewer lines", "no lines"])
def test_another_source_does_not_go_on(greedy_translator, source, begun, change):
    """Of the same size, and through a pipe too: the lines that are done are compared."""
    text = source.read_bytes().split(b"\n")
    other = {"another line": [text[1], text[0], *text[2:]], "fewer lines": text[:19], "no lines": []}[change]
    with pytest.raises(
        ValueError, match=rf"^{begun}.partial was begun with other lines than those of source: remove it"
    ):
        translate_file(greedy_translator, io.BytesIO(b"\n".join(other)), begun)


def test_a_source_may_have_been_mended_or_grown_after_what_is_done(greedy_translator, source, begun):
    text = [*source.read_text(encoding="utf-8").split("\n")[:20], "o livro dorme", "um gato"]
    assert translate_file(greedy_translator, io.BytesIO("\n".join(text).encode()), begun) == 22
    assert lines(begun) == greedy_translator(text)


def test_files_that_are_not_ours_or_damaged_are_left_alone(greedy_translator, source, begun, tmp_path):
    partial, journal = begun.with_name("out.txt.partial"), begun.with_name("out.txt.partial.json")
    whole = partial.read_bytes()
    os.truncate(partial, 3)
    with pytest.raises(ValueError, match="is shorter than it was: remove it"):
        translate_file(greedy_translator, source, begun)
    partial.write_bytes(whole)
    for damaged in ("{", "[]", '{"scores": false}'):
        journal.write_text(damaged, encoding="utf-8")
        with pytest.raises(ValueError, match=r"has a damaged journal, out\.txt\.partial\.json: remove it"):
            translate_file(greedy_translator, source, begun)
    journal.unlink()
    with pytest.raises(FileExistsError, match=r"out\.txt\.partial is in the way: remove it"):
        translate_file(greedy_translator, source, begun)
    assert partial.read_bytes() == whole


@pytest.mark.parametrize("left", ["out.txt.partial", "out.txt.partial.json"])
def test_where_nothing_is_made_yet_it_begins(greedy_translator, source, expected, begun, left):
    """A kill between two files at the beginning, or between two renames at the end."""
    for name in {"out.txt.partial", "out.txt.partial.json"} - {left}:
        begun.with_name(name).unlink()
    if left == "out.txt.partial":
        os.truncate(begun.with_name(left), 0)
    assert translate_file(greedy_translator, source, begun) == 72
    assert lines(begun) == expected


def test_lines_that_were_cut_are_said(greedy_translator, caplog):
    greedy = kt.Translator(greedy_translator.model, *tokenizers_of(greedy_translator), num_beams=1, max_length=8)
    target = io.BytesIO()
    text = ["o gato dorme", "palavra" * 9, "o gato", "x" * 40]
    translate_file(greedy, io.BytesIO("\n".join(text).encode()), target)
    assert target.getvalue().count(b"\n") == 4
    assert [record.getMessage() for record in caplog.records] == [
        "source: line 2 and 1 more longer than the translator reads: cut"
    ]


def test_a_stream_of_text_is_refused(greedy_translator):
    with pytest.raises(TypeError, match=r"must be binary, such as `sys.stdin.buffer`"):
        translate_file(greedy_translator, io.StringIO("o gato\n"), io.BytesIO())


NOT_UTF8 = "Onde está o gato?".encode("latin1")
MESSAGE = r"not UTF-8 \(byte 0xe1 at position 8\)\. Convert the file, for example with: iconv -f latin1 -t utf-8"


def test_a_line_not_utf8_stops_and_what_came_before_is_kept(greedy_translator, source, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LINES_AT_ONCE", 10)
    target, good = tmp_path / "out.txt", source.read_bytes().split(b"\n")
    source.write_bytes(b"\n".join([*good[:24], NOT_UTF8, *good[25:]]))
    with pytest.raises(ValueError, match=rf"^{source}, line 25: {MESSAGE}$"):
        greedy_translator.translate_file(source, target)
    assert not target.exists()
    assert lines(tmp_path / "out.txt.partial") == expected[:24]
    source.write_bytes(b"\n".join([*good[:24], "Onde está o gato?".encode(), *good[25:]]))
    again = Failing(greedy_translator, 99)
    assert translate_file(again, source, target) == 72
    assert len(again.seen) == 72 - 24
    assert lines(target)[:24] + lines(target)[25:] == expected[:24] + expected[25:]


@pytest.mark.parametrize("content", [NOT_UTF8, b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"])
def test_a_file_that_is_not_utf8_at_all_leaves_nothing_in_the_way(greedy_translator, tmp_path, content):
    source, target = tmp_path / "lines.txt", tmp_path / "out.txt"
    source.write_bytes(content)
    with pytest.raises(ValueError, match=r"lines\.txt, line 1: not UTF-8"):
        greedy_translator.translate_file(source, target)
    with pytest.raises(ValueError, match=r"^source, line 1: not UTF-8"):
        translate_file(greedy_translator, io.BytesIO(content), io.BytesIO())
    source.write_text(content.decode("latin1"), encoding="utf-8", newline="")  # as iconv does: of another size
    assert translate_file(greedy_translator, source, target) == content.count(b"\n") + (not content.endswith(b"\n"))


def test_where_no_file_can_be_is_said(greedy_translator, source, tmp_path):
    no = tmp_path / "no" / "such"
    with pytest.raises(FileNotFoundError, match=rf"^{no}/x\.txt: no such directory: {no}; make it first\.$"):
        greedy_translator.translate_file(source, no / "x.txt")
    with pytest.raises(IsADirectoryError, match=rf"^{tmp_path}: a directory; give a file to write to\.$"):
        greedy_translator.translate_file(source, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["source.txt"]


def command(*arguments, text="", **options):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=text.encode() if isinstance(text, str) else text,
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
        ((tmp_path / "nowhere",), "nowhere: no such directory (now in "),
        ((export, "--num-beams", "2"), "its search is fixed; leave out --num-beams and --jit-compile"),
        ((export, tmp_path / "no.txt"), "no.txt: no such file"),
    ):
        process = command(*arguments)
        assert process.returncode == 1
        last = process.stderr.decode().splitlines()[-1]
        assert last.startswith("keras-transformer: ")
        assert message in last
    process = command(export, text=NOT_UTF8)
    assert (process.returncode, process.stdout) == (1, b"")
    assert process.stderr.splitlines()[-1].startswith(
        b"keras-transformer: standard input, line 1: not UTF-8 (byte 0xe1"
    )


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
