"""The requests that a server answers before it calls a version ready, so that no user waits for the first ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import tensorflow as tf

# Numbers of fields in tensorflow_serving/apis: prediction_log.proto, predict.proto, model.proto.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS, _MODEL_NAME, _SIGNATURE_NAME = 6, 1, 1, 2, 1, 3
_KEY, _VALUE = 1, 2  # of an entry in a map


def write_warmup(directory: Path, name: str, texts: Sequence[str], batch_sizes: Sequence[int]) -> None:
    """Writes `assets.extra/tf_serving_warmup_requests`: every text at every batch size, for `serving_default`.

    Args:
        directory: The version's directory.
        name: The model's name; the server asks itself whatever it says.
        texts: The shortest and the longest that are expected, for example.
        batch_sizes: Those that the server makes.
    """
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in _records(name, texts, batch_sizes):
            writer.write(record)


def _records(name: str, texts: Sequence[str], batch_sizes: Sequence[int]) -> Iterator[bytes]:
    for size in batch_sizes:
        for text in texts:
            spec = _field(_MODEL_NAME, name.encode()) + _field(_SIGNATURE_NAME, b"serving_default")
            tensor = tf.make_tensor_proto([text] * size, dtype=tf.string, shape=[size]).SerializeToString()
            inputs = _field(_KEY, b"text") + _field(_VALUE, tensor)
            request = _field(_MODEL_SPEC, spec) + _field(_INPUTS, inputs)
            yield _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
