"""A strategy for several machines whose workers meet first, or say who is missing."""

import contextlib
import json
import os
import re
import selectors
import socket
import threading
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
        ValueError: If `TF_CONFIG`, or an address in it, cannot be read.
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

    Each listens on its own address and calls the others. A call is answered, and the caller says its number to the one
    that answered: now both know of it. A process leaves when it has called all and all have called it, so that none
    waits for one that has left.

    Args:
        addresses: "host:port" of every process.
        own: The place of this one.
        timeout_seconds: How long to wait.

    Raises:
        TimeoutError: If a process does not come in time.
        OSError: If this one's port is taken.
        ValueError: If an address cannot be read.
    """
    deadline = time.monotonic() + timeout_seconds
    places = [_place(address) for address in addresses]
    others = set(range(len(addresses))) - {own}
    called: set[int] = set()
    callers: set[int] = set()
    over = threading.Event()

    def call(index: int) -> None:
        while index not in called and not over.wait(0.05):
            left = max(0.02, deadline - time.monotonic())
            if _call(places[index], own, min(5.0, left / 2)):  # half to connect, half for the answer
                called.add(index)

    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listen(addresses[own]))
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(listener, selectors.EVENT_READ)
        stack.callback(over.set)
        for index in others:
            threading.Thread(target=call, args=(index,), daemon=True).start()
        while missing := others - (called & callers):
            if time.monotonic() > deadline:
                names = ", ".join(f"worker {index} ({addresses[index]})" for index in sorted(missing))
                raise TimeoutError(
                    f"worker {own} waited {timeout_seconds:g} s for {names}: start all workers with the same cluster "
                    "in TF_CONFIG, and let them reach each other."
                )
            for key, _ in selector.select(timeout=0.05):
                if key.fileobj is listener:
                    connection = stack.enter_context(listener.accept()[0])
                    connection.setblocking(False)
                    selector.register(connection, selectors.EVENT_READ, data=connection)
                elif not _answer(key.data, callers):
                    selector.unregister(key.data)
                    key.data.close()


def _place(address: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)]|([^\s:/\[\]]+)):([0-9]{1,5})", str(address))
    if not match or not 0 < int(match[3]) < 65536:
        raise ValueError(f'An address in TF_CONFIG must be "host:port" or "[IPv6]:port". Received: {address}')
    return match[1] or match[2], int(match[3])


def _listen(address: str) -> socket.socket:
    """Listens there; everywhere for a name, which may stand for another address outside than inside this machine."""
    host, port = _place(address)
    named = host != "localhost" and not re.fullmatch(r"[0-9.]+|.*:.*", host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(("" if named else host, port), family=family)
    except OSError as error:
        raise OSError(error.errno, f"{address}, this worker's address in TF_CONFIG: {error.strerror}") from error


def _call(place: tuple[str, int], own: int, seconds: float) -> bool:
    """Calls another and, once it answers, says this process's number; whether it came to that."""
    # UnicodeError: a name that cannot be one
    with contextlib.suppress(OSError, UnicodeError), socket.create_connection(place, timeout=seconds) as connection:
        connection.sendall(b"call\n")
        if connection.recv(16) == b"here\n":
            connection.sendall(b"met %d\n" % own)
            return True
    return False


def _answer(connection: socket.socket, callers: set[int]) -> bool:
    """Answers a call, or notes who says that it was answered; whether more is to come."""
    with contextlib.suppress(OSError, ValueError):
        match connection.recv(16).split():
            case [b"call"]:
                connection.sendall(b"here\n")
                return True
            case [b"met", number]:
                callers.add(int(number))
    return False
