"""The requests that a server answers before it calls a version ready, so that no user waits for the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

# Numbers of fields in tensorflow_serving/apis: prediction_log.proto, predict.proto, model.proto.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS, _MODEL_NAME, _SIGNATURE_NAME = 6, 1, 1, 2, 1, 3
_KEY, _VALUE = 1, 2  # of an entry in a map


def write_warmup(directory: Path, name: str, requests: Sequence[tuple[int, str]]) -> None:
    """Writes `assets.extra/tf_serving_warmup_requests`, for `serving_default`.

    Args:
        directory: The version's directory.
        name: The model's name; the server asks itself whatever it says.
        requests: How often a text, and which.
    """
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for size, text in requests:
            writer.write(_record(name, size, text))


def _record(name: str, size: int, text: str) -> bytes:
    spec = _field(_MODEL_NAME, name.encode()) + _field(_SIGNATURE_NAME, b"serving_default")
    tensor = tf.make_tensor_proto([text] * size, dtype=tf.string, shape=[size]).SerializeToString()
    inputs = _field(_KEY, b"text") + _field(_VALUE, tensor)
    request = _field(_MODEL_SPEC, spec) + _field(_INPUTS, inputs)
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
