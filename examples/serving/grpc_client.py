"""Translates lines through TensorFlow Serving's gRPC API; needs `pip install tensorflow-serving-api`.

    python examples/serving/grpc_client.py --address 127.0.0.1:8500 --model translator [FILE]

Reads FILE or standard input, a sentence a line, and writes a translation a line. To use it in a program, copy this
file: `GrpcClient("127.0.0.1:8500").translate(["Eu comprei um livro."])`.
"""

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # tensorflow-serving-api brings TensorFlow, for its messages

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

CHANNEL = [
    ("grpc.max_receive_message_length", 64 << 20),  # attention maps are larger than gRPC's own 4 MiB
    ("grpc.initial_reconnect_backoff_ms", 100),  # else a channel that was refused waits a second by itself
]


class ServingError(RuntimeError):
    """The server gave no answer; the message is one line that says what to do."""


class GrpcClient:
    """A model on a server.

    Args:
        address: Host and port of the server's gRPC API.
        model: The model's name in the server's configuration.
        version: The version to ask for; the server's choice if not given.
        timeout: Seconds for one request, repetitions included.
        attempts: How often a request is sent at most.
        batch_size: Sentences in one request; at most the server's `max_batch_size`.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8500",
        model: str = "translator",
        version: int | None = None,
        timeout: float = 60.0,
        attempts: int = 5,
        batch_size: int = 16,
    ) -> None:
        if batch_size < 1 or timeout <= 0:
            raise ValueError(f"batch size and timeout must be above 0. Received: {batch_size}, {timeout}")
        self.address, self.model, self.version = address, model, version
        self.timeout, self.attempts, self.batch_size = timeout, attempts, batch_size
        self.channel = grpc.insecure_channel(address, options=CHANNEL)  # one for all threads, and for all requests
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)

    def translate(self, sentences: Iterable[str]) -> list[str]:
        """The best translation of every sentence."""
        translations: list[str] = []
        for batch in batches(sentences, self.batch_size):
            translations += [text.decode("utf-8") for text in self.predict({"text": batch})["translation"]]
        return translations

    def predict(
        self, inputs: Mapping[str, Sequence[str | bytes]], signature: str = "serving_default"
    ) -> dict[str, Any]:
        """One request: all outputs of a signature as NumPy arrays, by name; texts are UTF-8 bytes."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        if self.version is not None:
            request.model_spec.version.value = self.version
        for name, texts in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(list(texts), tf.string, [len(texts)]))
        return {name: tf.make_ndarray(output) for name, output in self._send(request).outputs.items()}

    def _send(self, request: predict_pb2.PredictRequest) -> Any:
        """Sends until there is an answer. To ask twice does no harm; but only who is away or full is asked twice."""
        deadline = time.monotonic() + self.timeout
        attempt = 0
        while True:
            attempt += 1
            try:
                return self.stub.Predict(request, timeout=max(0.001, deadline - time.monotonic()))
            except grpc.RpcError as error:
                code, said = error.code(), " ".join(str(error.details()).split())[:300]
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:  # sent again it would only add to what the server cannot do
                raise ServingError(
                    f"No answer from {self.address} within {self.timeout:g} s: smaller batches, or a longer --timeout"
                )
            if code == grpc.StatusCode.NOT_FOUND:
                raise ServingError(f"No model {self.model!r} at {self.address}: see --model and --version ({said})")
            if code != grpc.StatusCode.UNAVAILABLE:  # away, not yet loaded, or its queue is full
                raise ServingError(f"The server at {self.address} refused the request with {code.name}: {said}")
            pause = random.uniform(0, min(5.0, 0.1 * 2**attempt))
            if attempt >= self.attempts or time.monotonic() + pause >= deadline:
                raise ServingError(
                    f"{self.address}, tried {attempt} times: away or busy ({said}); see --address and --timeout"
                )
            time.sleep(pause)


def batches(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` sentences; the last may be shorter."""
    rest = iter(sentences)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def read_lines(file: BinaryIO) -> Iterator[str]:
    """Lines end at newlines alone: Python's text mode would also end them at a lone carriage return."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise ServingError(f"Line {number} is not UTF-8: convert the file, for example with iconv") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Translates a file; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", metavar="FILE", help="sentences, one a line; standard input if not given")
    parser.add_argument("--address", default="127.0.0.1:8500", help="host and port of the server's gRPC API")
    parser.add_argument("--model", default="translator", help="the model's name in the server's configuration")
    parser.add_argument("--version", type=int, help="ask for this version")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one request, repetitions included")
    parser.add_argument("--batch-size", type=int, default=16, help="sentences in one request")
    args = parser.parse_args(arguments)
    try:
        client = GrpcClient(args.address, args.model, args.version, args.timeout, batch_size=args.batch_size)
        with open(args.file, "rb") if args.file else sys.stdin.buffer as file:
            for batch in batches(read_lines(file), args.batch_size):
                for translation in client.translate(batch):
                    sys.stdout.buffer.write(translation.replace("\n", " ").encode("utf-8") + b"\n")
                sys.stdout.buffer.flush()
    except (ServingError, OSError, ValueError) as error:
        print(f"grpc_client: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
