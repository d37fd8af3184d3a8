"""A strategy for several machines whose workers meet first, or say who is missing."""

import json
import os
import selectors
import socket
import time
from typing import Any


def multi_worker_strategy(timeout_seconds: float = 300.0, **options: Any) -> Any:
    """`tf.distribute.MultiWorkerMirroredStrategy`, once all the workers that `TF_CONFIG` names are there.

    TensorFlow waits for a missing worker for an hour, in a call that nothing interrupts, and aborts the process where a
    port is taken. So the workers meet first, on the same ports.

    Args:
        timeout_seconds: How long to wait for the others.
        **options: Of `tf.distribute.MultiWorkerMirroredStrategy`.

    Returns:
        The strategy. Without a cluster in `TF_CONFIG`, that of this machine's devices.

    Raises:
        TimeoutError: If a worker does not come in time.
        OSError: If this worker's port is taken.
        ValueError: If `TF_CONFIG` cannot be read.
    """
    import tensorflow as tf

    addresses, own = _cluster(os.environ.get("TF_CONFIG", ""))
    if len(addresses) > 1:
        meet(addresses, own, timeout_seconds)
    return tf.distribute.MultiWorkerMirroredStrategy(**options)


def _cluster(config: str) -> tuple[list[str], int]:
    """All addresses of a `TF_CONFIG`, and the place of this process's own."""
    if not config:
        return [], 0
    try:
        content = json.loads(config)
        cluster, task = content.get("cluster", {}), content.get("task", {})
        jobs = [(job, index) for job in ("chief", "worker") for index in range(len(cluster.get(job, [])))]
        addresses = [cluster[job][index] for job, index in jobs]
        return addresses, jobs.index((task.get("type", "worker"), int(task.get("index", 0)))) if jobs else 0
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            'TF_CONFIG must be JSON like {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", '
            f'"index": 0}}}}. Received: {config}'
        ) from error


def meet(addresses: list[str], own: int, timeout_seconds: float) -> None:
    """Returns when each process has reached all others.

    Each listens on its own address, calls the others and says its number; it leaves when all have answered its call
    and all have called it, so that none waits for one that has left.

    Args:
        addresses: "host:port" of every process.
        own: The place of this one.
        timeout_seconds: How long to wait.
    """
    deadline = time.monotonic() + timeout_seconds
    others = set(range(len(addresses))) - {own}
    called: set[int] = set()
    callers: set[int] = set()
    with _listen(addresses[own]) as listener, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while called != others or callers != others:
            called |= {index for index in others - called if _call(addresses[index], own)}
            if selector.select(timeout=0.1):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(5)
                    callers.add(_number(connection))
                callers &= others  # whatever else knocked
            if time.monotonic() > deadline:
                missing = sorted(others - (called & callers))
                raise TimeoutError(
                    f"worker {own} waited {timeout_seconds:g} s for "
                    f"{', '.join(f'worker {index} ({addresses[index]})' for index in missing)}: start all workers with "
                    "the same cluster in TF_CONFIG, and let them reach each other."
                )


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        return socket.create_server(("" if _is_name(host) else host, int(port)))
    except OSError as error:
        raise OSError(error.errno, f"{address}, this worker's address in TF_CONFIG: {error.strerror}") from error


def _is_name(host: str) -> bool:
    """Whether it is a name, which may stand for another address outside than inside this machine."""
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return host != "localhost"
    return False


def _call(address: str, own: int) -> bool:
    """Says this process's number to another; whether that one took it."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"%d\n" % own)
            return connection.recv(16) == b"ok\n"
    except OSError:
        return False


def _number(connection: socket.socket) -> int:
    """Who calls; -1 if it is not one of ours."""
    try:
        line = connection.recv(16)
        number = int(line)
        connection.sendall(b"ok\n")
    except (OSError, ValueError):
        return -1
    return number
