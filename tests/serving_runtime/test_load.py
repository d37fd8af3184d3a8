"""16 clients at once, texts from nothing to 2,000 words: no error, no wrong answer, no memory that grows.

10 seconds; a minute with LOAD_SECONDS=60. Latencies and throughput are printed (`pytest -rP`).
"""

import os
import pathlib
import random
import threading
import time

import numpy as np
import pytest
from grpc_client import GrpcClient
from rest_client import RestClient

CLIENTS = 16
SECONDS = float(os.environ.get("LOAD_SECONDS", "10"))

pytestmark = pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="reads memory from /proc")


@pytest.fixture(scope="module")
def answers(translator, texts, sources):
    """Texts of all lengths, and what each must give."""
    chosen = random.Random(1)
    long = [" ".join(chosen.choices(sources, k=words // 3))[: words * 8] for words in (50, 100, 200, 500, 1000, 2000)]
    every = ["", " ", *texts, *chosen.sample(sources, 60), *long, "x" * 3000]
    return dict(zip(every, translator(every), strict=True))


class Client(threading.Thread):
    """One client that sends until it is told to end, 1 to 4 texts at a time; seldom a long one."""

    def __init__(self, server, answers, seed, end):
        super().__init__(daemon=True)
        options = {"timeout": 120, "attempts": 10}
        self.client = GrpcClient(server.grpc, **options) if seed % 2 else RestClient(server.rest, **options)
        self.answers, self.chosen, self.end = answers, random.Random(seed), end
        self.latencies, self.wrong = [], []

    def run(self):
        short = [text for text in self.answers if len(text) < 300]
        long = [text for text in self.answers if len(text) >= 300]
        try:
            while not self.end.is_set():
                pool = long if self.chosen.random() < 0.02 else short
                texts = self.chosen.choices(pool, k=1 if pool is long else self.chosen.randint(1, 4))
                began = time.monotonic()
                translations = self.client.translate(texts)
                self.latencies.append((time.monotonic(), time.monotonic() - began, len(texts)))
                expected = [self.answers[text] for text in texts]
                if translations != expected:
                    self.wrong.append((texts, translations, expected))
        except Exception as error:
            self.wrong.append(error)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["server", "batching_server"])
def test_sixteen_clients(which, answers, request):
    server = request.getfixturevalue(which)
    for text in answers:  # every length once, so that what is kept for good is kept
        GrpcClient(server.grpc, timeout=120).translate([text] * 4)
    end = threading.Event()
    clients = [Client(server, answers, seed, end) for seed in range(CLIENTS)]
    memory = []
    began = time.monotonic()
    for client in clients:
        client.start()
    while time.monotonic() < began + SECONDS:
        time.sleep(0.1)
        memory.append((time.monotonic() - began, server.megabytes()))
    end.set()
    for client in clients:
        client.join(timeout=180)
        assert not client.is_alive()
    assert [fault for client in clients for fault in client.wrong] == []

    seconds = max(at for client in clients for at, _, _ in client.latencies) - began
    latencies = np.array([latency for client in clients for _, latency, _ in client.latencies])
    sentences = sum(count for client in clients for _, _, count in client.latencies)
    quarters = [
        np.median([size for at, size in memory if quarter * SECONDS / 4 <= at < (quarter + 1) * SECONDS / 4])
        for quarter in range(4)
    ]
    print(
        f"{which}: {CLIENTS} clients, {seconds:.0f} s, {len(latencies) / seconds:.0f} requests/s, "
        f"{sentences / seconds:.0f} sentences/s, p50 {np.percentile(latencies, 50):.3f} s, "
        f"p99 {np.percentile(latencies, 99):.3f} s, at most {latencies.max():.3f} s, "
        f"memory {', '.join(f'{quarter:.0f}' for quarter in quarters)} MB in the four quarters"
    )
    assert quarters[3] < quarters[1] * 1.1
    assert len(latencies) > CLIENTS
