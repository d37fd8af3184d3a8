"""TensorFlow Serving's RESTful API for the stand-in: its URLs, its JSON and its errors."""

import base64
import http.server
import json
import re
import threading

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

STATUS = {1: 499, 2: 500, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400, 12: 501, 14: 503}
PREDICT = re.compile(r"/v1/models/([^/:]+)(?:/(?:versions/(\d+)|labels/([^/:]+)))?:predict", re.IGNORECASE)
STATE = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(/metadata)?", re.IGNORECASE)
DTYPES = {1: (np.float32, (int, float)), 3: (np.int32, int), 7: (object, str), 9: (np.int64, int), 10: (bool, bool)}


def invalid(message):
    return tf.errors.InvalidArgumentError(None, None, message)


def is_b64(value):
    return isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str)


def to_value(value, dtype):
    if isinstance(value, dict):
        if dtype != 7 or not is_b64(value):
            raise invalid(f"JSON Value: {json.dumps(value)} not formatted correctly for base64 data")
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError:
            raise invalid("Unable to base64 decode") from None
    if not isinstance(value, DTYPES[dtype][1]) or (isinstance(value, bool) and dtype != 10):
        raise invalid(f"JSON Value: {json.dumps(value)} is not of expected type: {tf.as_dtype(dtype).name}")
    if dtype != 7:
        return value
    try:
        return value.encode("utf-8", "surrogateescape")  # bytes that are no UTF-8 pass, as in the server's parser
    except UnicodeEncodeError:
        raise invalid("JSON Parse error: The surrogate pair in string is invalid.") from None


def to_array(value, dtype):
    """A value, a list or nested lists of one shape."""
    shape, inner = [], value
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None

    def flat(value, level):
        if isinstance(value, list):
            if level >= len(shape) or len(value) != shape[level]:
                raise invalid(f"Encountered list at unexpected size: {len(value)} at level: {level}")
            return [leaf for item in value for leaf in flat(item, level + 1)]
        if level != len(shape):
            raise invalid(f"JSON Value: {json.dumps(value)} found at incorrect level: {level + 1}")
        return [to_value(value, dtype)]

    array = np.empty(shape, DTYPES[dtype][0])
    array.reshape(-1)[:] = flat(value, 0)
    return array


def read_request(body, infos_of):
    """A predict request: the signature's name, its inputs, and whether it is in row format."""
    try:
        document = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {json.dumps(document)[:200]} Is not object")
    signature = document.get("signature_name", "")
    if not isinstance(signature, str):
        raise invalid("'signature_name' key must be a string value.")
    infos = infos_of(signature)
    dtypes = {name: info.dtype for name, info in infos.items()}
    if ("instances" in document) == ("inputs" in document):
        if "inputs" in document:
            raise invalid("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist")
        raise invalid("Missing 'inputs' or 'instances' key")
    if "inputs" in document:
        value = document["inputs"]
        if not isinstance(value, dict) or is_b64(value):
            if len(dtypes) > 1:
                raise invalid("inputs is a plain value/list, but expecting an object as multiple input tensors")
            value = {next(iter(dtypes)): value}
        if missing := dtypes.keys() - value.keys():
            raise invalid(f"Missing named input: {min(missing)} in 'inputs' object.")
        return signature, {name: to_array(value[name], dtype) for name, dtype in dtypes.items()}, False
    rows = document["instances"]
    if not isinstance(rows, list) or not rows:
        raise invalid("Excepting 'instances' to be an list/array with values")
    named = isinstance(rows[0], dict) and not is_b64(rows[0])
    if not named and len(dtypes) > 1:
        raise invalid("instances is a plain list, but expecting list of objects as multiple input tensors required")
    for index, row in enumerate(rows):
        if (isinstance(row, dict) and not is_b64(row)) != named:
            raise invalid(f"Expecting {'object' if named else 'value/list'} at item {index} of input list")
        if named and row.keys() != dtypes.keys():
            raise invalid(f"Failed to process element: {index}. JSON object: keys must be equal to: {sorted(dtypes)}")
    columns = {name: [row[name] if named else row for row in rows] for name in dtypes}
    return signature, {name: to_array(column, dtypes[name]) for name, column in columns.items()}, True


def to_json(array, name):
    def leaf(value):
        if isinstance(value, bytes):
            if name.endswith("_bytes"):
                return {"b64": base64.b64encode(value).decode()}
            return value.decode("utf-8", "surrogateescape")  # written as it is: JSON only if the model gives UTF-8
        return float(str(value)) if isinstance(value, np.floating) else value.item()

    def nested(value):
        return [nested(item) for item in value] if isinstance(value, np.ndarray) else leaf(value)

    return nested(array)


def write_response(outputs, rows):
    columns = {name: to_json(array, name) for name, array in outputs.items()}
    single = next(iter(columns.values())) if len(columns) == 1 else None
    if not rows:
        return {"outputs": columns if single is None else single}
    if len({len(column) for column in columns.values()}) != 1:
        raise invalid("Tensor has inconsistent batch size")
    objects = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"predictions": objects if single is None else single}


def serve(models, port, timeout):
    """A running HTTP server on 127.0.0.1; `models` is the stand-in's `Models`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            match = PREDICT.fullmatch(self.path)
            self.answer(lambda: self.predict(match, body) if match else self.malformed())

        def do_GET(self):
            match = STATE.fullmatch(self.path)
            self.answer(lambda: self.state(match) if match else self.malformed())

        def predict(self, match, body):
            name, version, label = match.groups()
            servable = models.find(name, version and int(version), label)
            signature, inputs, rows = read_request(body, lambda signature: servable.signature(signature).inputs)
            return write_response(models.run(servable, signature, inputs, timeout), rows)

        def state(self, match):
            name, version, metadata = match.groups()
            call = models.metadata if metadata else models.status
            return json_format.MessageToDict(
                call(name, version and int(version)),
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )

        def malformed(self):
            raise invalid(f"Malformed request: {self.command} {self.path}")

        def answer(self, call):
            try:
                status, document = 200, call()
            except tf.errors.OpError as error:
                status, document = STATUS.get(error.error_code, 500), {"error": error.message}
            data = json.dumps(document, ensure_ascii=False, indent=4).encode("utf-8", "surrogateescape")
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            """Says nothing."""

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, request, client_address):
            """Of a client that has gone away."""

    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
