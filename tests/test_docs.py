"""The Python of the pages of docs runs as it stands, block after block, in one process a page."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import keras_transformer as kt

ROOT = pathlib.Path(kt.__file__).parents[1]
TRAINING, DECODING, SEEING, MASKS = (
    ROOT / "docs" / f"{page}.md" for page in ("training", "decoding", "seeing", "masks")
)
NOT_RUN = "<!-- not run: needs several machines -->"

# Two logical CPUs stand for two GPUs, and the tiny preset is tinier.
PREAMBLE = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import pathlib
import sys
import tensorflow as tf
from keras_transformer.models.presets import PRESETS
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
PRESETS["tiny"] |= {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24}
"""
RUN = "exec(compile(pathlib.Path(sys.argv[1]).read_text(), sys.argv[2], 'exec'), {'__name__': 'page'})"


# What `make demo` leaves, untrained.
TRANSLATOR = """
import keras_transformer as kt
sentences = [text for pair in kt.ParallelCorpus.sample("test") for text in pair]
tokenizer = kt.Tokenizer.train(sentences, vocabulary_size=400)
model = kt.Transformer.from_preset("tiny", source_vocabulary_size=400)
kt.Translator(model, tokenizer, max_target_length=8).save("runs/pt_en/translator")
"""


def blocks(page):
    """Of each Python block its first line's number, counted from 1, its text, and whether it is to be run."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        found.append((text.count("\n", 0, match.start(1)) + 1, match[1], before != NOT_RUN))
    return found


@pytest.mark.parametrize(
    ("page", "least", "not_run"), [(TRAINING, 10, 1), (DECODING, 3, 0), (SEEING, 4, 0), (MASKS, 5, 0)]
)
def test_every_block_is_seen(page, least, not_run):
    text = page.read_text(encoding="utf-8")
    assert len(blocks(page)) == text.count("```python") >= least
    assert [run for _, _, run in blocks(page)].count(False) == text.count(NOT_RUN) == not_run
    for line, block, _ in blocks(page):
        compile(block, f"{page}, line {line}", "exec")


def run(page, preamble, directory):
    """The page's blocks at their own lines' numbers, so that a traceback names the line of the page."""
    lines = [""] * len(page.read_text(encoding="utf-8").splitlines())
    for first, block, is_run in blocks(page):
        if is_run:
            parts = block.splitlines()
            lines[first - 1 : first - 1 + len(parts)] = parts
    script = directory / "blocks.py"
    script.write_text("\n".join(lines), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-c", PREAMBLE + preamble + RUN, str(script), str(page)],
        cwd=directory,  # the blocks write into `runs`
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process


@pytest.mark.slow
def test_training_runs(tmp_path):
    process = run(TRAINING, "", tmp_path)
    for said in (
        "training on 1 replica in float32: plain graphs",
        "training on 2 replicas in float32: plain graphs",
        "XLA compiles each replica's forward, backward and update",
        "in mixed_float16",
        "going on from runs/",
    ):
        assert said in process.stderr, said


@pytest.mark.slow
def test_decoding_runs(tmp_path):
    run(DECODING, TRANSLATOR, tmp_path)
    assert len((tmp_path / "english.txt").read_text(encoding="utf-8").split("\n")) == 3
    assert not list(tmp_path.glob("*.partial*"))


@pytest.mark.slow
def test_seeing_runs(tmp_path):
    run(SEEING, TRANSLATOR, tmp_path)
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "<h1" in page
    assert "bicicleta branca." in page
    pictures = ["attention", "one_head", "all", "mask", "positions", "schedule", "model", "history"]
    assert {path.stem for path in tmp_path.glob("*.png")} == set(pictures)


@pytest.mark.slow
def test_masks_run_and_make_the_pictures_of_their_page(tmp_path):
    process = run(MASKS, "", tmp_path)
    made = {path.name for path in tmp_path.glob("*.png")}
    assert made == set(re.findall(r"images/(mask_\w+\.png)", MASKS.read_text(encoding="utf-8")))
    refusals = process.stdout.splitlines()
    assert len(refusals) == 2
    for said in refusals:
        assert said[:60] in MASKS.read_text(encoding="utf-8")


def test_every_file_has_its_line():
    """A link to each module of the package, and no link to what is not there."""
    linked = set()
    for page in ("overview", "files"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        linked |= set(re.findall(r"\]\(\.\./keras_transformer/([^)]*)\)", text))
    package = ROOT / "keras_transformer"
    modules = {str(path.relative_to(package)) for path in package.rglob("*.py") if not path.name.startswith("_")}
    assert {name for name in linked if not (package / name).exists()} == set()
    assert {name for name in modules - linked if not name.startswith("data/grammar/")} == set()
