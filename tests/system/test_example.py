"""The example on the command line: all the way with tiny settings, and one clear line for bad input."""

import contextlib
import gzip
import importlib.util
import io
import json
import logging
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import matplotlib.image
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.models.presets import PRESETS

REPOSITORY = Path(kt.__file__).parents[1]
EXAMPLE = REPOSITORY / "examples" / "train_pt_en.py"
TINY = ["--held-out", "20", "--epochs", "1", "--batch-tokens", "512", "--max-length", "32", "--num-beams", "2"]
PAIRS = [(f"o gato número {index} dorme", f"cat number {index} sleeps") for index in range(60)]
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16}
RUN_SMALL = f"""import runpy, sys
import tensorflow as tf
devices = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
from keras_transformer.models.presets import PRESETS
PRESETS["tiny"] = {SMALL}
sys.path.insert(0, {str(EXAMPLE.parent)!r})
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
"""


def run(*arguments, program=("-c", RUN_SMALL)):
    """In a process of its own, with two devices and a smaller model: the default one takes a minute to trace."""
    return subprocess.run(
        [sys.executable, *program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def example():
    """The example's module; what it does to the package's logger is undone."""
    package = logging.getLogger("keras_transformer")
    handlers, level, tensorflow_level = list(package.handlers), package.level, logging.getLogger("tensorflow").level
    spec = importlib.util.spec_from_file_location("train_pt_en", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(EXAMPLE.parent))  # as where the file is run
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(EXAMPLE.parent))
    package.handlers[:] = handlers
    package.setLevel(level)
    logging.getLogger("tensorflow").setLevel(tensorflow_level)


@pytest.fixture
def refuse(example, capsys, monkeypatch, tmp_path):
    """Runs the example, which must end with status 2 and one line on stderr; returns the line."""

    monkeypatch.setattr(sys, "argv", [str(EXAMPLE)])

    def refuse(*arguments):
        try:
            status = example.main([*map(str, arguments), "--run-directory", str(tmp_path / "run")])
        except SystemExit as exit:  # argparse's way
            status = exit.code
        lines = [line for line in capsys.readouterr().err.splitlines() if line and not line.startswith("usage:")]
        assert status == 2, lines
        (line,) = [line for line in lines if not line.startswith(" ")]
        assert line.startswith("train_pt_en")
        assert "Traceback" not in line
        return line

    return refuse


@pytest.fixture
def files(tmp_path):
    """Two good files of 60 lines."""
    paths = tmp_path / "text.pt", tmp_path / "text.en"
    for path, sentences in zip(paths, zip(*PAIRS, strict=True), strict=True):
        path.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    return paths


@pytest.fixture(scope="module")
def run_small(example):
    """The same in this process."""

    def run(*arguments):
        output, errors = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(PRESETS, "tiny", SMALL)
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                status = example.main([*map(str, arguments)])
        return subprocess.CompletedProcess(arguments, status, output.getvalue(), errors.getvalue())

    return run


@pytest.fixture(scope="module")
def sample_run(run_small, tmp_path_factory):
    """The example on the built-in sample: what it printed, and its run directory."""
    directory = tmp_path_factory.mktemp("example") / "run"
    result = run_small("--pairs", 300, "--vocabulary-size", 420, *TINY, "--run-directory", directory)
    assert result.returncode == 0, result.stderr
    return result.stdout, directory


@pytest.mark.slow
def test_from_the_built_in_sample_to_a_served_model(sample_run):
    output, directory = sample_run
    assert "pairs: 300 to train, 20 to validate, 20 to test" in output
    for figure in ("loss", "token accuracy", "perplexity", "BLEU", "exact match"):
        assert re.search(rf"^  {figure} +\d", output, re.MULTILINE), figure
    shown = re.findall(r"^  source +(.+)\n  translated ?(.*)\n  reference +(.+)$", output, re.MULTILINE)
    assert len(shown) == 5
    assert "a fresh process with TensorFlow and TF-Text alone gives the same 5 texts" in output
    for hint in ("TensorBoard", "tensorflow_model_server", "--source-file FILE --target-file FILE"):
        assert hint in output.partition("What next:")[2]

    assert matplotlib.image.imread(directory / "attention.png").std() > 0.01
    assert list((directory / "logs").rglob("events.out.tfevents.*"))
    translator = kt.Translator.load(directory / "translator")
    assert translator.num_beams == 2
    sources, translations, _ = zip(*shown, strict=True)
    assert [text.strip() for text in translator(sources)] == [text.strip() for text in translations]
    served = tf.saved_model.load(str(directory / "export" / "1")).signatures["serving_default"]
    texts = [text.decode().strip() for text in served(text=tf.constant(sources))["translation"].numpy()]
    assert texts == [text.strip() for text in translations]


@pytest.mark.slow
def test_a_run_goes_on_and_is_not_mixed_with_another(run_small, sample_run):
    """More epochs go on from the one that is trained; another configuration is named and refused."""
    output, directory = sample_run
    same = ["--pairs", 300, "--vocabulary-size", 420, *TINY, "--run-directory", directory]
    (updates,) = re.findall(r"trained for (\d+) updates", output)
    longer = run_small(*same, "--epochs", 2)
    assert "going on from" in longer.stdout
    assert re.findall(r"trained for (\d+) updates", longer.stdout) == [str(2 * int(updates))]
    refused = run_small(*same, "--dropout", 0.3)
    assert refused.returncode == 2
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("train_pt_en")]
    assert "holds a run with --dropout 0.1, and now it is 0.3: give another --run-directory, or --no-resume" in line


@pytest.mark.slow
def test_compiled_and_in_half_precision(run_small, files, tmp_path):
    own = ["--source-file", files[0], "--target-file", files[1], "--vocabulary-size", 290, *TINY]
    options = ["--jit-compile", "--mixed-precision", "float16", "--patience", 1]
    result = run_small(*own, *options, "--run-directory", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert "XLA compiles each replica's" in result.stdout
    assert "gives the same 5 texts" in result.stdout


@pytest.mark.slow
def test_then_on_the_readers_own_files(sample_run, files, tmp_path):
    """In a process of its own, into the same run directory: the next version, and the translator replaced. On all
    devices, whose collectives a process can use for one group alone.
    """
    _, directory = sample_run
    with gzip.open(tmp_path / "text.en.gz", "wb") as file:
        file.write(files[1].read_bytes())
    own = ["--source-file", files[0], "--target-file", tmp_path / "text.en.gz", "--vocabulary-size", 290]
    versions = len(list((directory / "export").iterdir()))
    ways = ["--strategy", "mirrored", "--accumulate", 2, "--mixed-precision", "bfloat16"]
    result = run(*own, *TINY, *ways, "--no-resume", "--run-directory", directory)
    assert result.returncode == 0, result.stderr
    assert "plain graphs, no XLA" in result.stdout
    assert "2 replicas" in result.stdout
    assert re.search(r"pairs: \d+ to train, \d to validate, \d to test", result.stdout)
    assert len(list((directory / "export").iterdir())) == versions + 1
    assert kt.Translator.load(directory / "translator").source_tokenizer.vocabulary_size == 290


def test_bad_input_in_a_process_of_its_own(files):
    absent = files[1].with_name("absent.en")
    result = run("--source-file", files[0], "--target-file", absent, program=[str(EXAMPLE)])
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if "absent.en" in line]
    assert line.startswith(f"train_pt_en: {absent}: no such file. Check the path")
    assert "Traceback" not in result.stderr


BAD_BYTES = b"primeira linha\nsegunda linha \xe3\nterceira\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\ntwo\n", r"text\.pt has 60 lines but .*text\.en has 2: .*Align the files"),
        (BAD_BYTES + b"mais\n" * 57, r"text\.en, line 2: not UTF-8 \(byte 0xe3 at position 14\)\. Convert the file"),
        (b"", r"text\.en: is empty\. Give a file with one sentence a line"),
    ],
)
def test_a_bad_file_is_named_with_its_line(refuse, files, content, message):
    files[1].write_bytes(content)
    assert re.search(message, refuse("--source-file", files[0], "--target-file", files[1]))


def test_a_broken_gzip_file_is_named(refuse, files, tmp_path):
    broken = tmp_path / "text.en.gz"
    broken.write_bytes(gzip.compress(files[1].read_bytes())[:-20])
    assert re.search(r"text\.en\.gz: not a whole gzip file", refuse("--source-file", files[0], "--target-file", broken))


def test_a_folder_is_no_file(refuse, files, tmp_path):
    assert re.search(r": not a file\. Give", refuse("--source-file", files[0], "--target-file", tmp_path))


@pytest.mark.parametrize("side", ["source", "target"])
def test_one_side_alone_is_not_enough(refuse, files, side):
    assert "--source-file and --target-file go together" in refuse(f"--{side}-file", files[0])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--validation-source-file", "{0}"),
        ("--test-target-file", "{1}"),
        ("--tsv", "{0}"),
        ("--tfds", "ted_hrlr_translate/pt_to_en"),
    ],
)
def test_no_file_is_ignored_in_silence(refuse, files, arguments):
    """One of two files, or a second corpus."""
    given = [argument.format(*files) for argument in arguments]
    line = refuse("--source-file", files[0], "--target-file", files[1], *given)
    assert arguments[0] in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--vocabulary-size", "100000"),
            r"vocabulary_size=100000 is larger than the text allows; .*Lower it, or give",
        ),
        (("--vocabulary-size", "10"), r"vocabulary_size=10 is too small"),
        (("--max-length", "0"), r"max.length.*0"),
        (("--max-length", "3"), r"max_length"),
        (("--batch-tokens", "4"), r"batch_tokens"),
        (("--preset", "huge"), r"tiny, small, base.* big.*huge"),
        (("--epochs", "0"), r"epochs"),
        (("--epochs", "two"), r"--epochs: invalid int value: 'two'"),
        (("--num-beams", "0"), r"num.beams"),
        (("--held-out", "0"), r"held.out"),
        (("--dropout", "1.5"), r"dropout.*1\.5"),
        (("--label-smoothing", "-1"), r"label_smoothing.*-1"),
        (("--warmup-steps", "0"), r"warmup.steps.*0"),
        (("--accumulate", "0"), r"accumulate.*0"),
        (("--patience", "0"), r"--patience must be 1 or more\. Received: 0"),
        (("--strategy", "cloud"), r"--strategy: invalid choice: 'cloud'"),
        (("--mixed-precision", "int8"), r"--mixed-precision: invalid choice: 'int8'"),
    ],
)
def test_an_impossible_setting_is_named(refuse, files, arguments, message):
    line = refuse("--source-file", files[0], "--target-file", files[1], "--vocabulary-size", "290", *arguments)
    assert re.search(message, line), line


@pytest.mark.parametrize("content", ['{"preset": ', "[]", ""])
def test_a_damaged_run_is_named(refuse, files, tmp_path, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tokenizer.model").touch()
    (tmp_path / "run" / "run.json").write_text(content, encoding="utf-8")
    line = refuse("--source-file", files[0], "--target-file", files[1], "--vocabulary-size", 290)
    assert f"{tmp_path / 'run' / 'run.json'} is damaged: give another --run-directory, or --no-resume" in line


def test_a_run_is_noted_whole_or_not_at_all(refuse, files, tmp_path, monkeypatch):
    write_text = Path.write_text

    def until_the_disk_is_full(path, text, **options):
        if not path.name.startswith("run.json"):
            return write_text(path, text, **options)
        path.write_bytes(text[:9].encode())
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", until_the_disk_is_full)
    line = refuse("--source-file", files[0], "--target-file", files[1], "--vocabulary-size", 290)
    assert "No space left on device" in line
    assert not (tmp_path / "run" / "run.json").exists()


def test_checkpoints_that_cannot_be_removed_are_named(refuse, files, tmp_path):
    """They would go on under the new tokenizer."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")  # which `rmtree` does not take
    line = refuse("--source-file", files[0], "--target-file", files[1], "--vocabulary-size", 290, "--no-resume")
    assert re.search(r"run/checkpoints cannot be removed \(.*\): give another --run-directory", line)


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_one_line(run_small, files, tmp_path):
    own = ["--source-file", files[0], "--target-file", files[1], "--vocabulary-size", 290, *TINY]
    result = run_small(*own, "--learning-rate-scale", "1e38", "--run-directory", tmp_path / "run")
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("train_pt_en")]
    assert re.match(r"train_pt_en: The (loss|gradient's norm) is (nan|inf) at update \d+, in batch \d+ of", line)


@pytest.mark.parametrize(
    ("jobs", "task", "chief"),
    [
        (["worker", "worker"], ("worker", 0), True),
        (["worker", "worker"], ("worker", 1), False),
        (["chief", "worker"], ("chief", 0), True),
        (["chief", "worker"], ("worker", 0), False),
        (["worker"], ("worker", 0), True),
    ],
)
def test_one_process_writes(example, monkeypatch, jobs, task, chief):
    cluster = {job: [f"127.0.0.1:{4000 + place}" for place, one in enumerate(jobs) if one == job] for job in jobs}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}}))
    strategy = types.SimpleNamespace(cluster_resolver=tf.distribute.cluster_resolver.TFConfigClusterResolver())
    assert example.is_chief(strategy) is chief
    assert example.is_chief(tf.distribute.get_strategy())


def test_pairs_of_the_sample_must_be_some(refuse):
    assert re.search(r"size|pairs", refuse("--pairs", "0"))
