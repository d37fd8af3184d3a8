"""Translates lines through TensorFlow Serving's REST API, with Python's standard library alone.

    python examples/serving/rest_client.py --address 127.0.0.1:8501 --model translator [FILE]

Reads FILE or standard input, a sentence a line, and writes a translation a line. To use it in a program, copy this
file: `RestClient("127.0.0.1:8501").translate(["Eu comprei um livro."])`.
"""

import argparse
import http.client
import itertools
import json
import random
import sys
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO


class ServingError(RuntimeError):
    """The server gave no answer; the message is one line that says what to do."""


class RestClient:
    """A model on a server.

    Args:
        address: Host and port of the server's REST API.
        model: The model's name in the server's configuration.
        version: The version to ask for; the server's choice if not given.
        timeout: Seconds for one request, repetitions included.
        attempts: How often a request is sent at most.
        batch_size: Sentences in one request; at most the server's `max_batch_size`.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8501",
        model: str = "translator",
        version: int | None = None,
        timeout: float = 60.0,
        attempts: int = 5,
        batch_size: int = 16,
    ) -> None:
        if batch_size < 1 or timeout <= 0:
            raise ValueError(f"batch size and timeout must be above 0. Received: {batch_size}, {timeout}")
        self.address, self.model, self.timeout, self.attempts = address, model, timeout, attempts
        self.batch_size = batch_size
        pinned = "" if version is None else f"/versions/{version}"
        self.path = f"/v1/models/{urllib.parse.quote(model, safe='')}{pinned}:predict"

    def translate(self, sentences: Iterable[str]) -> list[str]:
        """The best translation of every sentence."""
        translations: list[str] = []
        for batch in batches(sentences, self.batch_size):
            translations += self.predict({"text": batch})["translation"]
        return translations

    def predict(self, inputs: dict[str, list[str]], signature: str = "serving_default") -> dict[str, Any]:
        """One request in column format: all outputs of a signature, by name."""
        body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
        status, answer = self._send(body)
        if status == 200:
            if not isinstance(answer, dict) or "outputs" not in answer:
                raise ServingError(f"{self.address} does not answer as TensorFlow Serving: see --address")
            outputs: dict[str, Any] = answer["outputs"]
            return outputs
        said = one_line(answer)
        if status == 404:
            raise ServingError(f"No model {self.model!r} at {self.address}: see --model and --address ({said})")
        if status == 504:
            raise ServingError(f"The server gave up: smaller batches, or a longer --rest_api_timeout_in_ms ({said})")
        raise ServingError(f"The server at {self.address} refused the request with status {status}: {said}")

    def _send(self, body: bytes) -> tuple[int, Any]:
        """Sends until there is an answer. To ask twice does no harm; but only who is away or full is asked twice."""
        deadline = time.monotonic() + self.timeout
        attempt = 0
        while True:
            attempt += 1
            try:
                status, answer = self._post(body, max(0.001, deadline - time.monotonic()))
                if status not in (429, 503):  # too many requests, queue full or not yet loaded
                    return status, answer
                trouble = f"the server is busy or not ready ({one_line(answer)})"
            except TimeoutError:  # sent again it would only add to what the server cannot do in time
                raise ServingError(
                    f"No answer from {self.address} within {self.timeout:g} s: smaller batches, or a longer --timeout"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                    raise ServingError(f"{self.address} does not speak HTTP: --address wants the REST port") from None
                trouble = f"no server answers there ({str(error) or type(error).__name__})"
            pause = random.uniform(0, min(5.0, 0.1 * 2**attempt))
            if attempt >= self.attempts or time.monotonic() + pause >= deadline:
                raise ServingError(f"{self.address}, tried {attempt} times: {trouble}; see --address and --timeout")
            time.sleep(pause)

    def _post(self, body: bytes, timeout: float) -> tuple[int, Any]:
        url = urllib.parse.urlsplit(f"//{self.address}")
        connection = http.client.HTTPConnection(url.hostname or "", url.port or 8501, timeout=timeout)
        try:
            connection.request("POST", self.path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        finally:
            connection.close()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        return response.status, answer if isinstance(answer, dict) else {"error": text or response.reason}


def one_line(answer: dict[str, Any]) -> str:
    """What the server says of an error."""
    return " ".join(str(answer.get("error", answer)).split())[:300]


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
    parser.add_argument("--address", default="127.0.0.1:8501", help="host and port of the server's REST API")
    parser.add_argument("--model", default="translator", help="the model's name in the server's configuration")
    parser.add_argument("--version", type=int, help="ask for this version")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one request, repetitions included")
    parser.add_argument("--batch-size", type=int, default=16, help="sentences in one request")
    args = parser.parse_args(arguments)
    try:
        client = RestClient(args.address, args.model, args.version, args.timeout, batch_size=args.batch_size)
        with open(args.file, "rb") if args.file else sys.stdin.buffer as file:
            for batch in batches(read_lines(file), args.batch_size):
                for translation in client.translate(batch):
                    sys.stdout.buffer.write(translation.replace("\n", " ").encode("utf-8") + b"\n")
                sys.stdout.buffer.flush()
    except (ServingError, OSError, ValueError) as error:
        print(f"rest_client: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
