"""The example clients against the stand-in: they give the translator's own texts, wait, give up, and say why."""

import base64
import http.client
import json
import socket
import subprocess
import sys
import threading
import time

import grpc_client
import numpy as np
import pytest
import rest_client
import tensorflow as tf
from faulty import Faulty, running

SIGNATURES = {
    "serving_default": {"translation", "score", "truncated"},
    "nbest": {"translation", "score", "truncated"},
    "score": {"log_probability", "num_tokens", "truncated"},
    "attention": {"translation", "source_pieces", "target_pieces", "attention", "truncated"},
}
CLIENTS = {"grpc": grpc_client.GrpcClient, "rest": rest_client.RestClient}
ERRORS = (grpc_client.ServingError, rest_client.ServingError)
both = pytest.mark.parametrize("kind", ["grpc", "rest"])


def connect(kind, addresses, **options):
    return CLIENTS[kind](addresses[kind == "rest"], **options)


def call_rest(address, method, path, document=None):
    """Status and JSON, without the client."""
    connection = http.client.HTTPConnection(address, timeout=60)
    body = document if isinstance(document, bytes | None) else json.dumps(document).encode()
    connection.request(method, path, body)
    response = connection.getresponse()
    status, answer = response.status, json.loads(response.read().decode("utf-8"))
    connection.close()
    return status, answer


@pytest.fixture(scope="module")
def signatures(server):
    """What the served model has, and the names of the inputs."""
    status, answer = call_rest(server.rest, "GET", "/v1/models/translator/metadata")
    assert status == 200
    found = answer["metadata"]["signature_def"]["signature_def"]
    return {name: sorted(found[name]["inputs"]) for name in found if name in SIGNATURES}


def test_the_server_needs_no_package_of_ours(server):
    assert server.ready["needlessly_loaded"] == []


@both
def test_texts_are_the_translators_own(server, translator, texts, kind):
    client = connect(kind, (server.grpc, server.rest))
    assert client.translate(texts) == translator(texts)
    assert client.translate([]) == []
    assert client.translate(iter(["São João 日本 😀"])) == translator(["São João 日本 😀"])


@both
def test_a_version_can_be_asked_for(server, kind):
    client = connect(kind, (server.grpc, server.rest), version=1)
    assert client.translate(["o gato dorme"]) == connect(kind, (server.grpc, server.rest)).translate(["o gato dorme"])
    with pytest.raises(ERRORS, match=r"No model 'translator' .*Specific\(translator, 7\)"):
        connect(kind, (server.grpc, server.rest), version=7).translate(["o gato"])


@both
@pytest.mark.parametrize("name", SIGNATURES)
def test_every_signature_in_every_format(server, signatures, name, kind):
    inputs = {"text": ["o gato dorme", "", "este avião não é meu"], "translation": ["the cat sleeps", "", "this"]}
    inputs = {key: inputs[key] for key in signatures[name]}
    outputs = connect(kind, (server.grpc, server.rest)).predict(inputs, name)
    assert outputs.keys() == SIGNATURES[name]
    if kind == "grpc":
        outputs = {key: np.vectorize(to_text, otypes=[object])(value).tolist() for key, value in outputs.items()}
    rows = [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]
    status, answer = call_rest(
        server.rest, "POST", "/v1/models/translator:predict", {"signature_name": name, "instances": rows}
    )
    assert status == 200
    rows = zip(*outputs.values(), strict=True)
    assert_close(answer["predictions"], [dict(zip(outputs, row, strict=True)) for row in rows])
    if name == "attention":
        assert {np.asarray(json.loads(text)).ndim for text in outputs["attention"]} == {4}


def to_text(value):
    return value.decode("utf-8") if isinstance(value, bytes) else value


def assert_close(actual, expected):
    """Equal, numbers nearly."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_close(actual[key], expected[key])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    elif isinstance(expected, str) and expected.startswith("[["):
        np.testing.assert_allclose(json.loads(actual), json.loads(expected), atol=2e-3)
    else:
        assert actual == expected


def test_rows_columns_and_base64_give_the_same(server, translator):
    text = "São João 日本 😀"
    encoded = {"b64": base64.b64encode(text.encode()).decode()}
    expected = translator([text])
    path = "/v1/models/translator/versions/1:predict"
    for instances in ([text], [encoded], [{"text": text}], [{"text": encoded}]):
        status, answer = call_rest(server.rest, "POST", path, {"instances": instances})
        assert (status, [row["translation"] for row in answer["predictions"]]) == (200, expected)
    for inputs in ([text], [encoded], {"text": [text]}, {"text": [encoded]}):
        status, answer = call_rest(server.rest, "POST", path, {"inputs": inputs})
        assert (status, answer["outputs"]["translation"]) == (200, expected)
        assert answer["outputs"]["truncated"] == [False]


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"instances": []}, 400),
        ({"instances": [1]}, 400),
        ({"instances": [["a"]]}, 400),
        ({"inputs": "not a list"}, 400),
        ({"inputs": {"words": ["a"]}}, 400),
        ({"inputs": ["a"], "instances": ["a"]}, 400),
        ({"inputs": ["a"], "signature_name": "nothing"}, 400),
        ({"inputs": [{"b64": "*"}]}, 400),
        ({}, 400),
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
    ],
)
def test_errors_have_the_documented_form(server, document, status):
    found, answer = call_rest(server.rest, "POST", "/v1/models/translator:predict", document)
    assert (found, list(answer)) == (status, ["error"])


def test_state_and_unknown_paths(server):
    assert call_rest(server.rest, "GET", "/v1/models/translator") == (
        200,
        {
            "model_version_status": [
                {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
            ]
        },
    )
    assert call_rest(server.rest, "GET", "/v1/models/other")[0] == 404
    assert call_rest(server.rest, "POST", "/v1/models/other:predict", {"inputs": ["a"]})[0] == 404
    assert call_rest(server.rest, "GET", "/v2")[0] == 400


@both
def test_a_server_that_is_not_ready_is_asked_again(kind):
    models = Faulty(refusals=2)
    with running(models) as addresses:
        assert connect(kind, addresses).translate(["é"]) == ["é"]
    assert models.calls == 3


@both
def test_a_server_that_stays_busy_is_given_up(kind):
    models = Faulty(refusals=99)
    with running(models) as addresses, pytest.raises(ERRORS, match="tried 3 times") as caught:
        connect(kind, addresses, attempts=3).translate(["a"])
    assert models.calls == 3
    assert "\n" not in str(caught.value)


@both
@pytest.mark.parametrize("error", [tf.errors.InvalidArgumentError, tf.errors.InternalError])
def test_what_will_not_change_is_not_asked_again(kind, error):
    models = Faulty(refusals=99, error=error)
    with running(models) as addresses, pytest.raises(ERRORS, match=r"refused the request with .*: not now, later"):
        connect(kind, addresses).translate(["a"])
    assert models.calls == 1


def test_too_many_requests_are_repeated_over_rest():
    models = Faulty(refusals=1, error=tf.errors.ResourceExhaustedError)
    with running(models) as addresses:
        assert connect("rest", addresses).translate(["a"]) == ["A"]


@both
def test_a_deadline_is_kept_and_the_request_not_repeated(kind):
    models = Faulty(seconds=120.0)
    with running(models) as addresses:
        began = time.monotonic()
        with pytest.raises(ERRORS, match=r"No answer from .* within 0.5 s: smaller batches, or a longer --timeout"):
            connect(kind, addresses, timeout=0.5).translate(["a"])
        assert 0.4 < time.monotonic() - began < 60.0
        models.released.set()
    assert models.calls == 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@both
def test_nobody_there_and_late_there(kind):
    ports = free_port(), free_port()
    addresses = [f"127.0.0.1:{port}" for port in ports]
    with pytest.raises(ERRORS, match=r"tried 2 times: .*; see --address and --timeout"):
        connect(kind, addresses, attempts=2).translate(["a"])
    answers = []
    client = connect(kind, addresses, attempts=30)
    thread = threading.Thread(target=lambda: answers.extend(client.translate(["a"])))
    thread.start()
    time.sleep(0.5)
    with running(Faulty(), *ports):
        thread.join(timeout=30)
    assert answers == ["A"]


def test_the_other_ports_protocol(server):
    with pytest.raises(ERRORS, match=r"does not speak HTTP: --address wants the REST port"):
        rest_client.RestClient(server.grpc).translate(["a"])
    with pytest.raises(ERRORS, match=r"tried 2 times: away or busy"):
        grpc_client.GrpcClient(server.rest, attempts=2).translate(["a"])


@both
def test_the_command_line(server, translator, examples, tmp_path, kind):
    """A line in, a line out, from standard input and from a file."""
    command = [
        sys.executable,
        str(examples / f"{kind}_client.py"),
        "--batch-size=3",
        "--address",
        getattr(server, kind),
    ]
    lines = ["o gato dorme", "", "São João 日本 😀", "um\rdois\x85três\u2028", "o cão"]
    text = "".join(f"{line}\n" for line in lines[:-1]).encode() + b"o c\xc3\xa3o\r\n"
    expected = "".join(f"{translation}\n" for translation in translator(lines)).encode()
    assert subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True).stdout == expected
    file = tmp_path / "lines"
    file.write_bytes(text.removesuffix(b"\r\n"))
    assert subprocess.run([*command, file], stdout=subprocess.PIPE, check=True).stdout == expected


@both
@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        (b"a\n", ["--model=other"], "No model 'other' at "),
        (b"a\n\xff\n", [], "Line 2 is not UTF-8: convert the file"),
        (None, [], "No such file"),
        (b"a\n", ["--batch-size=0"], "batch size and timeout must be above 0"),
    ],
)
def test_a_fault_is_one_line(server, tmp_path, capsys, kind, content, arguments, said):
    module = {"grpc": grpc_client, "rest": rest_client}[kind]
    file = tmp_path / "lines"
    if content is not None:
        file.write_bytes(content)
    assert module.main(["--address", getattr(server, kind), *arguments, str(file)]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"{kind}_client: ")
    assert said in errors
    assert errors.count("\n") == 1
