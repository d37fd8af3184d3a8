"""Whatever bytes come in: valid UTF-8 and finite scores come out, and the process lives."""

import base64
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from grpc_client import GrpcClient
from rest_client import RestClient

SEED = 20240607
NUMBER = 6000
THROUGH_THE_PROTOCOL = 400

PIECES = [
    *("\0", "\n", "\r\n", "\t", "\x85", "\u2028", "\u200b", "\u200d", "\ufeff", "\u202e", "\u00ad", "\u3000"),
    *("▁", "<unk>", "<s>", "</s>", "<pad>", "<0x41>", "<0xFF>", "%s", "{}", "\\", '"', "\ufffd", "\ufffe"),
    *("\U0010ffff", "o gato", "não é meu", "São João", "日本", "😀", "👩\u200d👩\u200d👧", "🇵🇹", "ﷺ", "ﬁ", "\u212b"),
    *("e\u0301\u0301\u0301", "ا", "नि", "각"),
]
BYTES = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80" * 5]
LONG = ["x", " ", "\0", "\n", "é", "日", "😀", "▁", "\u0301", "\u200b", "ﷺ", b"\xff", b"\xed\xa0\x80", "<unk>"]


def characters(chosen):
    """Of all planes, surrogates excepted."""
    planes = ((0, 0x80), (0, 0x800), (0, 0x10000), (0x10000, 0x110000), (0x1F300, 0x1FAFF), (0x300, 0x370))
    points = [chosen.randrange(*chosen.choice(planes)) for _ in range(chosen.randint(1, 30))]
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000).encode()


def generate():
    """Strings of bytes, the same ones each time."""
    chosen = random.Random(SEED)
    kinds = [
        lambda: characters(chosen),
        lambda: chosen.randbytes(chosen.randint(0, 40)),
        lambda: "".join(chosen.choices(PIECES, k=chosen.randint(1, 8))).encode(),
        lambda: b"".join(chosen.choice([*BYTES, b"o gato ", "é".encode()]) for _ in range(chosen.randint(1, 8))),
        lambda: unicodedata.normalize("NFD", "não está à mão ").encode() * chosen.randint(1, 3),
    ]
    return [chosen.choice(kinds)() for _ in range(NUMBER)]


@pytest.fixture(scope="module")
def serve(export):
    return tf.saved_model.load(str(export)).signatures


def check(outputs, texts):
    """What every answer must be."""
    for name, value in outputs.items():
        value = np.asarray(value)
        assert len(value) == len(texts)
        if value.dtype == object:
            for text, source in zip(value, texts, strict=True):
                for item in np.ravel(text):
                    try:
                        item.decode("utf-8")
                    except UnicodeDecodeError:
                        raise AssertionError(f"{name} of {source!r} is no UTF-8: {item!r}") from None
        elif value.dtype.kind == "f":
            assert np.all(np.isfinite(value)), f"{name}: {value}"


def run(serve, name, texts):
    """A signature on texts, which stand for every input."""
    inputs = serve[name].structured_input_signature[1]
    return {key: value.numpy() for key, value in serve[name](**{key: tf.constant(texts) for key in inputs}).items()}


@pytest.mark.slow
def test_thousands_of_strings(serve):
    texts = sorted(generate(), key=len)
    assert len(texts) == NUMBER
    assert any(b"\0" in text for text in texts)
    for start in range(0, NUMBER, 128):
        batch = texts[start : start + 128]
        outputs = run(serve, "serving_default", batch)
        check(outputs, batch)
        assert np.all(outputs["score"] > -1e8)  # -1e9 is what a search that finds nothing gives


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nbest", "score", "attention"])
def test_other_signatures(serve, name):
    texts = sorted(generate()[:512], key=len)
    for start in range(0, 512, 32):
        batch = texts[start : start + 32]
        check(run(serve, name, batch), batch)


@pytest.mark.slow
@pytest.mark.parametrize("unit", LONG)
def test_100_kilobytes_of_one_character(serve, unit):
    unit = unit.encode() if isinstance(unit, str) else unit
    text = unit * (100_000 // len(unit))
    outputs = run(serve, "serving_default", [text, b"o gato dorme", b""])
    check(outputs, [text, b"o gato dorme", b""])
    alone = run(serve, "serving_default", [b"o gato dorme"])
    assert outputs["translation"][1] == alone["translation"][0]
    assert outputs["translation"][2] == b""
    assert outputs["truncated"].tolist()[1:] == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nbest", "score", "attention"])
def test_100_kilobytes_for_other_signatures(serve, name):
    """What cannot be scored or looked at whole is cut, before it takes the memory of its square."""
    texts = [b"x" * 100_000, b"o gato dorme", "日".encode() * 33_000]
    outputs = run(serve, name, texts)
    check(outputs, texts)
    assert outputs["truncated"].tolist() == [True, False, True]


@pytest.mark.slow
def test_through_the_protocol(server, serve):
    """gRPC carries bytes as they are; REST in base64, and texts also as texts."""
    texts = generate()[:THROUGH_THE_PROTOCOL]
    grpc, rest = GrpcClient(server.grpc), RestClient(server.rest)
    for start in range(0, len(texts), 16):
        batch = texts[start : start + 16]
        expected = run(serve, "serving_default", batch)
        by_grpc = grpc.predict({"text": batch})
        assert by_grpc["translation"].tolist() == expected["translation"].tolist()
        by_rest = rest.predict({"text": [{"b64": base64.b64encode(text).decode()} for text in batch]})
        assert [text.encode() for text in by_rest["translation"]] == expected["translation"].tolist()
        np.testing.assert_allclose(by_rest["score"], expected["score"], rtol=1e-4, atol=1e-4)
    valid = [text.decode() for text in texts if is_utf8(text)]
    assert len(valid) > THROUGH_THE_PROTOCOL / 4
    assert rest.translate(valid) == grpc.translate(valid)


def is_utf8(text):
    try:
        return bool(text.decode("utf-8"))
    except UnicodeDecodeError:
        return False
