"""Processes that train one model together on 127.0.0.1: one process's weights, a kill in between, who is missing."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from ports import free_ports

import keras_transformer as kt

WORKER = pathlib.Path(__file__).with_name("worker.py")
pytestmark = pytest.mark.slow


def start(ports, index, *arguments):
    return subprocess.Popen(
        [sys.executable, str(WORKER), ",".join(ports), str(index), *arguments],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(kt.__file__).parents[1]), "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, seconds=150):
    """What a worker printed last, if it ended well."""
    output, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(output.strip().splitlines()[-1])


def assert_ended_alike(ours, theirs):
    for name, values in theirs["history"].items():
        assert ours["history"][name] == pytest.approx(values, rel=1e-5), name
    assert ours["statistics"] == pytest.approx(theirs["statistics"], rel=1e-5)
    for name in ("weights", "predicted"):
        for mine, other in zip(ours[name], theirs[name], strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-5)


@pytest.fixture(scope="module")
def alone():
    """One process on the same batches: 10 an epoch, the last of 5 rows, 2 epochs."""
    result = ended(start(["0"], 0))
    assert result["statistics"]["updates"] == 20
    return result


@pytest.mark.parametrize("xla", [[], ["--jit-compile"]], ids=["plain", "xla"])
def test_two_workers_end_with_one_process_weights(alone, xla):
    ports = free_ports()
    for process in [start(ports, index, *xla) for index in range(2)]:
        assert_ended_alike(ended(process), alone)


def test_two_workers_accumulate_clip_and_average_as_one_process_does(alone):
    options = {"gradient_accumulation_steps": 4, "global_clipnorm": 0.1, "use_ema": True, "ema_momentum": 0.9}
    arguments = ["--jit-compile", "--optimizer", json.dumps(options)]
    expected = ended(start(["0"], 0, *arguments))
    assert expected["statistics"]["updates"] == 5
    assert not np.allclose(expected["weights"][0], alone["weights"][0], atol=1e-2)
    ports = free_ports()
    for process in [start(ports, index, *arguments) for index in range(2)]:
        assert_ended_alike(ended(process), expected)


def test_a_killed_worker_and_the_same_command_again(alone, tmp_path):
    """Worker 1 is killed with -9 after 13 updates; the other ends by an error or is ended; both are started again."""
    arguments = ["--checkpoints", str(tmp_path)]
    ports = free_ports()
    first = [start(ports, 0, *arguments), start(ports, 1, *arguments, "--end", str(int(signal.SIGKILL)), "13")]
    first[1].communicate(timeout=150)
    assert first[1].returncode == -signal.SIGKILL
    first[0].kill()  # as whatever supervises the workers does
    first[0].communicate(timeout=30)
    assert last_checkpoint(tmp_path) in (12, 13)
    assert_both_go_on(alone, arguments)


def test_sigterm_to_one_worker_saves_and_ends_both(tmp_path):
    """After 13 updates, in the middle of the second epoch, and between two of the checkpoints that are due."""
    arguments = ["--checkpoints", str(tmp_path)]
    ports = free_ports()
    for process in [start(ports, 0, *arguments), start(ports, 1, *arguments, "--end", str(int(signal.SIGTERM)), "13")]:
        _, errors = process.communicate(timeout=150)
        assert process.returncode == 0, errors[-3000:]
        assert f"ended by SIGTERM: the same call goes on from {tmp_path}" in errors
    assert last_checkpoint(tmp_path) == 13


def test_sigterm_says_on_both_that_the_first_could_not_save(tmp_path):
    """Worker 0 writes: a directory is where its file belongs, so that renaming fails."""
    (tmp_path / "update-00000013.ckpt").mkdir()
    arguments = ["--checkpoints", str(tmp_path)]
    ports = free_ports()
    for process in [start(ports, 0, *arguments), start(ports, 1, *arguments, "--end", str(int(signal.SIGTERM)), "13")]:
        _, errors = process.communicate(timeout=150)
        assert process.returncode == 1, errors[-3000:]
        since = tmp_path / "update-00000012.ckpt"
        assert f"ended by SIGTERM and not saved: the same call goes on from {since}" in errors


def last_checkpoint(directory):
    return max(int(path.stem[7:]) for path in directory.glob("update-*.ckpt"))


def assert_both_go_on(alone, arguments):
    ports = free_ports()
    for process in [start(ports, index, *arguments) for index in range(2)]:
        assert_ended_alike(ended(process), alone)


def test_a_worker_that_never_comes_is_named_in_time():
    ports = free_ports()
    began = time.monotonic()
    process = start(ports, 0, "--timeout", "2")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"TimeoutError: worker 0 waited 2 s for worker 1 (127.0.0.1:{ports[1]})" in errors
    assert time.monotonic() - began < 45


def test_a_taken_port_is_named_at_once():
    ports = free_ports()
    with socket.create_server(("127.0.0.1", int(ports[0]))):
        _, errors = (process := start(ports, 0)).communicate(timeout=60)
    assert process.returncode == 1
    assert f"127.0.0.1:{ports[0]}, this worker's address in TF_CONFIG: Address already in use" in errors
