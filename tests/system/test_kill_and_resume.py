"""A training killed in the middle of an epoch and started again ends as if nothing had happened (CASES C1, C2)."""

import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

import keras_transformer as kt

TRAINEE = pathlib.Path(__file__).with_name("trainee.py")


def train(directory, result, *end):
    """The process' status. The trainee itself checks after each epoch that every pair was seen once in it."""
    package = str(pathlib.Path(kt.__file__).parent.parent)
    process = subprocess.run(
        [sys.executable, TRAINEE, directory, result, *map(str, end)],
        env={**os.environ, "PYTHONPATH": package, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("uninterrupted")
    assert train(directory, directory / "result.npz").returncode == 0
    with np.load(directory / "result.npz") as arrays:
        result = dict(arrays)
    assert 25 <= result["batches"] < 37, "about 100 steps, and update 37 is within an epoch"
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "last"),
    [(signal.SIGKILL, -9, "update-00000035.ckpt"), (signal.SIGTERM, 0, "update-00000037.ckpt")],
)
def test_the_resumed_training_equals_the_uninterrupted(uninterrupted, tmp_path, number, status, last):
    """Ended at update 37 of about 100, within the second epoch, with dropout: weights, optimizer, seeds, history."""
    files, result = tmp_path / "checkpoints", tmp_path / "result.npz"
    assert train(files, result, int(number), 37).returncode == status
    assert not result.exists()
    assert max(path.name for path in files.iterdir()) == last
    process = train(files, result)
    assert process.returncode == 0
    with np.load(result) as arrays:
        assert set(arrays) == set(uninterrupted)
        for name, value in uninterrupted.items():
            assert arrays[name].tobytes() == value.tobytes(), name
