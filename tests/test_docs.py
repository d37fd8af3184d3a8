"""The Python of docs/training.md runs as it stands, block after block, in one process."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import keras_transformer as kt

ROOT = pathlib.Path(kt.__file__).parents[1]
PAGE = ROOT / "docs" / "training.md"
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


def blocks():
    """Of each Python block its first line's number, counted from 1, its text, and whether it is to be run."""
    text = PAGE.read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        found.append((text.count("\n", 0, match.start(1)) + 1, match[1], before != NOT_RUN))
    return found


def test_every_block_is_seen():
    text = PAGE.read_text(encoding="utf-8")
    assert len(blocks()) == text.count("```python") >= 10
    assert [run for _, _, run in blocks()].count(False) == text.count(NOT_RUN) == 1
    for line, block, _ in blocks():
        compile(block, f"{PAGE}, line {line}", "exec")


@pytest.mark.slow
def test_the_blocks_run(tmp_path):
    """At their own lines' numbers, so that a traceback names the line of the page."""
    lines = [""] * len(PAGE.read_text(encoding="utf-8").splitlines())
    for first, block, run in blocks():
        if run:
            parts = block.splitlines()
            lines[first - 1 : first - 1 + len(parts)] = parts
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(lines), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-c", PREAMBLE + RUN, str(script), str(PAGE)],
        cwd=tmp_path,  # the blocks write into `runs`
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    for said in (
        "training on 1 replica in float32: plain graphs",
        "training on 2 replicas in float32: plain graphs",
        "XLA compiles each replica's forward, backward and update",
        "in mixed_float16",
        "going on from runs/",
    ):
        assert said in process.stderr, said
