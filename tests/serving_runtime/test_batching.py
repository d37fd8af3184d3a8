"""Requests merged by the server's rules: each caller gets what it would get alone."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from grpc_client import GrpcClient
from rest_client import RestClient
from stand_in import Servable
from stand_in_batching import Batcher, read_parameters

SLOW_TO_CLOSE = """
max_batch_size { value: 8 } batch_timeout_micros { value: 1000000 } max_enqueued_batches { value: 3 }
num_batch_threads { value: 1 } allowed_batch_sizes: 3 allowed_batch_sizes: 8
"""


@pytest.fixture(scope="module")
def servable(export):
    return Servable(export)


def inputs_of(servable, name, texts):
    """The same texts for every input of a signature."""
    return {key: np.array([text.encode() for text in texts], object) for key in servable.signatures[name].inputs}


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].shape == value.shape
        if name == "attention":  # the text of numbers: layers x heads x target x source, of this sentence alone
            for one, other in zip(actual[name], value, strict=True):
                np.testing.assert_allclose(json.loads(one), json.loads(other), atol=2e-3)
        elif value.dtype == np.float32:
            np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-4)
        else:
            assert actual[name].tolist() == value.tolist(), name


@pytest.mark.parametrize("name", ["serving_default", "nbest", "score", "attention"])
def test_each_caller_gets_what_it_would_get_alone(servable, texts, name):
    """Requests of 1 to 3 rows and of very different lengths, sent at the same time."""
    requests = [texts[start : start + 1 + start % 3] for start in range(0, len(texts), 3)]
    requests[3] = [" ".join(["gato"] * 60)]
    requests = [inputs_of(servable, name, request) for request in requests]
    alone = [servable.run(name, request, 60) for request in requests]
    batcher = Batcher(servable.run, read_parameters(SLOW_TO_CLOSE.replace("3 }", "30 }")))
    with ThreadPoolExecutor(len(requests)) as pool:
        merged = list(pool.map(lambda request: batcher(name, request, 60), requests))
    for actual, expected in zip(merged, alone, strict=True):
        assert_same(actual, expected)
    assert len(batcher.sizes) < len(requests) / 2  # else nothing was merged
    assert {padded for _, padded in batcher.sizes} <= {3, 8}
    assert any(rows < padded for rows, padded in batcher.sizes)


def test_signatures_are_not_mixed():
    calls = []

    def run(signature, inputs, timeout):
        calls.append((signature, len(inputs["text"])))
        return {"out": inputs["text"]}

    batcher = Batcher(run, read_parameters(SLOW_TO_CLOSE))
    with ThreadPoolExecutor(16) as pool:  # 8 each: full batches
        answers = pool.map(
            lambda index: batcher(f"signature {index % 2}", {"text": np.array([index])}, 60)["out"].tolist(), range(16)
        )
        assert list(answers) == [[index] for index in range(16)]
    assert sorted(calls) == [("signature 0", 8), ("signature 1", 8)]


def test_no_rows(servable):
    batcher = Batcher(servable.run, read_parameters(SLOW_TO_CLOSE))
    outputs = batcher("serving_default", {"text": np.array([], object)}, 60)
    assert [value.shape for value in outputs.values()] == [(0,)] * len(outputs)


def test_what_the_rules_refuse():
    running, release = threading.Event(), threading.Event()

    def run(signature, inputs, timeout):
        running.set()
        release.wait(60)
        if b"bad" in inputs["text"]:
            raise tf.errors.InvalidArgumentError(None, None, "bad")
        return {"out": inputs["text"][:1] if b"short" in inputs["text"] else inputs["text"]}

    batcher = Batcher(run, read_parameters(SLOW_TO_CLOSE))
    rows = np.array([b"x"] * 8, object)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Task size 9 is larger than maximum input batch size 8"):
        batcher("a", {"text": np.array([b"x"] * 9, object)}, 60)
    with pytest.raises(tf.errors.InvalidArgumentError, match="equal 0th-dimension size"):
        batcher("a", {"text": rows, "translation": rows[:2]}, 60)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(batcher, "a", {"text": rows}, 60)]
        assert running.wait(60)  # the one thread has it
        waiting += [pool.submit(batcher, "a", {"text": rows}, 60) for _ in range(3)]
        while len(batcher.queues["a"]) < 3:
            time.sleep(0.01)
        with pytest.raises(tf.errors.UnavailableError, match="queue to which this task was submitted is full"):
            batcher("a", {"text": rows}, 60)
        release.set()
        assert [future.result()["out"].tolist() for future in waiting] == [rows.tolist()] * 4
        neighbours = [pool.submit(batcher, "a", {"text": text}, 60) for text in (rows[:7], np.array([b"bad"], object))]
        for future in neighbours:
            with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
                future.result()
    with pytest.raises(tf.errors.FailedPreconditionError, match="0th dimension does not equal"):
        batcher("a", {"text": np.array([b"short"], object)}, 60)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="while waiting in batching queue"):
        batcher("a", {"text": rows[:1]}, 0.01)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("max_batch_size: 8", text_format.ParseError),  # a wrapped number: the server ends at once
        ("max_batchsize { value: 8 }", text_format.ParseError),
        ("max_batch_size { value: 8 } allowed_batch_sizes: 4", ValueError),
        ("max_batch_size { value: 8 } allowed_batch_sizes: 8 allowed_batch_sizes: 4", ValueError),
    ],
)
def test_a_parameter_file_that_the_server_refuses(text, error):
    with pytest.raises(error):
        read_parameters(text)


def test_the_parameters_fit_the_clients(batching_file):
    parameters = read_parameters(batching_file.read_text(encoding="utf-8"))
    for client in (GrpcClient, RestClient):
        assert client("127.0.0.1:1").batch_size <= parameters["max_batch_size"]


def test_both_clients_at_once_over_the_protocol(batching_server, translator, texts):
    clients = [GrpcClient(batching_server.grpc, batch_size=5), RestClient(batching_server.rest, batch_size=4)]
    parts = [texts[start : start + 7] for start in range(0, len(texts), 4)]
    expected = dict(zip(texts, translator(texts), strict=True))
    with ThreadPoolExecutor(len(parts)) as pool:
        answers = pool.map(lambda index: clients[index % 2].translate(parts[index]), range(len(parts)))
        for part, answer in zip(parts, answers, strict=True):
            assert answer == [expected[text] for text in part]
