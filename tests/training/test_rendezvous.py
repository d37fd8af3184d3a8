"""Workers, here threads, that meet before they train: started at one instant or not, among strangers, some missing."""

import contextlib
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ports import free_ports

import keras_transformer as kt
from keras_transformer.training.rendezvous import meet


def addresses(count, host="127.0.0.1"):
    return [f"{host}:{port}" for port in free_ports(count)]


def errors(cluster, seconds, comers=None, delays=None):
    """What each worker that comes ended with: None if it met all others. All start at one instant, but for delays."""
    comers = range(len(cluster)) if comers is None else comers
    barrier = threading.Barrier(len(comers))

    def work(index):
        barrier.wait()
        time.sleep(delays[index] if delays else 0)
        meet(cluster, index, seconds)

    with ThreadPoolExecutor(len(comers)) as threads:
        return [future.exception() for future in [threads.submit(work, index) for index in comers]]


@pytest.mark.parametrize("count", [2, 4, 8])
def test_workers_started_at_one_instant_meet(count):
    for _ in range(15):
        assert errors(addresses(count), 11) == [None] * count


@pytest.mark.parametrize("count", [2, 4, 8])
def test_workers_started_one_after_the_other_meet(count):
    chance = random.Random(count)
    for _ in range(5):
        delays = [chance.uniform(0, 0.3) for _ in range(count)]
        assert errors(addresses(count), 11, delays=delays) == [None] * count


def has_ipv6():
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.parametrize("host", ["localhost", *(["[::1]"] if has_ipv6() else [])])
def test_other_ways_to_write_an_address(host):
    assert errors(addresses(3, host), 5) == [None] * 3


def test_one_that_never_comes_is_named_within_the_limit():
    cluster = addresses(4)
    began = time.monotonic()
    for index, error in enumerate(errors(cluster, 2, comers=range(3))):
        assert isinstance(error, TimeoutError)
        assert str(error).startswith(f"worker {index} waited 2 s for worker 3 ({cluster[3]}): start all workers")
    assert 2 <= time.monotonic() - began < 7


def test_those_that_never_answer_are_named_within_the_limit():
    """Their ports take connections, as those of a stopped process do."""
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        cluster = addresses(1) + [f"127.0.0.1:{server.getsockname()[1]}" for server in silent]
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"worker 0 waited 1 s for worker 1 .*, worker 2 .*, worker 3 "):
            meet(cluster, 0, 1)
        assert time.monotonic() - began < 6


def knock(address, text=b""):
    """A connection to a worker that says something, as soon as the worker listens."""
    host, port = address.split(":")
    for _ in range(500):
        with contextlib.suppress(ConnectionRefusedError):
            connection = socket.create_connection((host, int(port)))
            connection.sendall(text)
            return connection
        time.sleep(0.01)
    raise TimeoutError(f"nobody listens at {address}")


@pytest.mark.parametrize("text", [b"GET / HTTP/1.1\r\n", b"met x\n", b"\xff\x00", b"\r\n"])
def test_strangers_that_knock_are_no_workers(text):
    """A port scanner, a health check."""
    cluster = addresses(2)
    with ThreadPoolExecutor(1) as thread:
        stranger = thread.submit(knock, cluster[0], text)
        with pytest.raises(TimeoutError, match="worker 0 waited 1 s for worker 1 "):
            meet(cluster, 0, 1)
        stranger.result().close()


def test_workers_meet_while_strangers_hold_the_line():
    """More than one says nothing and stays: nobody waits for them."""
    cluster = addresses(3)
    with ThreadPoolExecutor(4) as threads:
        strangers = [threads.submit(knock, cluster[0]) for _ in range(4)]
        ended = errors(cluster, 6, delays=[0, 0.5, 0.5])
        for stranger in strangers:
            stranger.result().close()
    assert ended == [None] * 3


def test_a_taken_port_is_an_error_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        own = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"{own}, this worker's address in TF_CONFIG: Address already in use"):
            meet([own, *addresses(1)], 0, 600)


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("address", ["somewhere", "somewhere:", "somewhere:http", ":2222", "a:0", "a:65536", "::1:22"])
def test_an_address_that_cannot_be_read_is_named(address, own):
    with pytest.raises(ValueError, match="An address in TF_CONFIG must be") as error:
        meet([*addresses(1), address], own, 5)
    assert str(error.value).endswith(f"Received: {address}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("config", ["{", "[]", '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"index": 5}}'])
def test_what_tf_config_must_be(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="TF_CONFIG must be JSON like"):
        kt.multi_worker_strategy()
