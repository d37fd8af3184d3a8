"""A model without TensorFlow for the stand-in, that answers in capitals: late, or after refusing a few times."""

import contextlib
import threading

import numpy as np
import stand_in
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2


class Faulty:
    """Takes the place of `stand_in.Models`."""

    version = 1

    def __init__(self, refusals=0, error=tf.errors.UnavailableError, seconds=0.0):
        self.refusals, self.error, self.seconds, self.calls = refusals, error, seconds, 0
        self.released = threading.Event()  # ends the waiting

    def find(self, name, version=None, label=None):
        if name != "translator":
            raise tf.errors.NotFoundError(None, None, f"Servable not found for request: Latest({name})")
        return self

    def signature(self, name):
        signature = meta_graph_pb2.SignatureDef()
        signature.inputs["text"].dtype = signature.outputs["translation"].dtype = tf.string.as_datatype_enum
        signature.outputs["truncated"].dtype = tf.bool.as_datatype_enum
        return signature

    def run(self, servable, signature, inputs, timeout):
        self.calls += 1
        if self.calls <= self.refusals:
            raise self.error(None, None, "not now,\nlater")
        self.released.wait(self.seconds)
        capitals = np.array([text.upper() for text in inputs["text"]], object)
        return {"translation": capitals, "truncated": np.zeros(capitals.shape, bool)}


@contextlib.contextmanager
def running(models, port=0, rest_api_port=0):
    """The addresses of a stand-in in this process: gRPC and REST."""
    server, port, rest = stand_in.start(models, port, rest_api_port)
    try:
        yield f"127.0.0.1:{port}", f"127.0.0.1:{rest.server_address[1]}"
    finally:
        rest.shutdown()
        rest.server_close()
        server.stop(None)
