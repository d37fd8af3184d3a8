"""What the command line does in a process, and says when it cannot: one line that names the remedy."""

import importlib
import logging
import tomllib
from pathlib import Path

import pytest

import keras_transformer as kt
from keras_transformer.serving.command_line import main


@pytest.fixture
def refused(capsys):
    """`refused(status, *arguments)`: all that the command writes on standard error, which is one line."""

    def refused(status, *arguments):
        try:
            assert main([str(argument) for argument in arguments]) == status
        except SystemExit as error:  # argparse's way out
            assert error.code == status  # noqa: PT017
        output, message = capsys.readouterr()
        assert output == ""
        assert message.endswith("\n")
        assert message.count("\n") == 1
        return message.removesuffix("\n")

    return refused


def test_the_installed_command_is_this_one():
    project = tomllib.loads((Path(kt.__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["scripts"]["keras-transformer"].partition(":")
    assert getattr(importlib.import_module(module), name) is main


def test_a_file_goes_to_standard_output_by_the_options_given(translator, sources, tmp_path, capsysbinary, caplog):
    caplog.set_level(logging.INFO, logger="keras_transformer")
    translator.save(tmp_path / "translator")
    source = tmp_path / "source.txt"
    source.write_text("\n".join(sources[:6]) + "\n", encoding="utf-8")

    def output(*options):
        assert main(["translate", str(tmp_path), str(source), *options]) == 0
        return capsysbinary.readouterr().out.decode()

    assert output() == "".join(f"{text}\n" for text in translator(sources[:6]))

    def best(num_beams):
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        other = kt.Translator(translator.model, *tokenizers, num_beams=num_beams)
        return [hypothesis for row in other.translate(sources[:6], num_hypotheses=4) for hypothesis in row]

    expected = best(8)
    assert [hypothesis.text for hypothesis in expected] != [hypothesis.text for hypothesis in best(4)]
    for compiled in ([], ["--jit-compile"]):
        caplog.clear()
        rows = output("--num-beams", "8", "--nbest", "4", "--scores", "--batch-size", "2", *compiled).splitlines()
        assert ("XLA compiled the search" in caplog.text) == bool(compiled)
        scores, texts = zip(*(row.split("\t") for row in rows), strict=True)
        assert list(texts) == [hypothesis.text for hypothesis in expected]
        assert [float(score) for score in scores] == pytest.approx([h.score for h in expected], abs=1e-4)


def test_what_is_no_translator_is_said_to_be_none(refused, tmp_path):
    there, run, file = (tmp_path / name for name in ("docs", "wrong", "model.keras"))
    there.mkdir()
    file.touch()
    assert refused(1, "translate", run) == (
        f"keras-transformer: {run}: no such directory (now in {Path.cwd()}); give a run, its translator, or an export."
    )
    assert refused(1, "translate", there) == (
        f"keras-transformer: {there}: no translator here; give a run's directory, its translator/, or an export."
    )
    assert refused(1, "translate", file) == (
        f"keras-transformer: {file}: not a directory; give a run, its translator, or an export."
    )


def test_files_that_cannot_be_are_said_before_anything_is_loaded(refused, tmp_path):
    assert refused(1, "translate", "x", tmp_path) == (
        f"keras-transformer: {tmp_path}: a directory; give a file with a sentence a line, or pipe lines in."
    )
    assert refused(1, "translate", "x", tmp_path / "no.txt") == (
        f"keras-transformer: {tmp_path}/no.txt: no such file; give a file with a sentence a line, or pipe lines in."
    )
    assert refused(1, "translate", "x", "--output", tmp_path / "no" / "x.txt") == (
        f"keras-transformer: {tmp_path}/no/x.txt: no such directory: {tmp_path}/no; make it first."
    )


def test_more_lines_than_beams_name_the_option(refused, greedy_translator, export, tmp_path):
    greedy_translator.save(tmp_path / "translator")
    assert refused(1, "translate", export, "--nbest", "9") == (
        f"keras-transformer: --nbest 9: {export} gives 4 at most; give --nbest 4 or less."
    )
    assert refused(1, "translate", tmp_path, "--nbest", "3", "--num-beams", "2") == (
        "keras-transformer: --nbest 3 needs as many beams: give --num-beams 3 or more, or leave it out."
    )


def test_wrong_usage_is_one_line(refused):
    assert refused(2, "translate", "x", "--nbest", "0") == (
        "keras-transformer translate: error: argument --nbest: must be a positive integer, not '0' "
        "(see keras-transformer translate --help)"
    )
    assert refused(2) == (
        "keras-transformer: error: no command given; the command there is: keras-transformer translate "
        "(see keras-transformer --help)"
    )
