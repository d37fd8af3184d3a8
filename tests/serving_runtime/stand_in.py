"""A stand-in for TensorFlow Serving's `tensorflow_model_server`, which cannot be installed with pip.

    python stand_in.py --model_name=translator --model_base_path=DIR [--port=0] [--rest_api_port=0]

It is not the server. It speaks the documented protocol with the real messages (PredictionService's Predict and
GetModelMetadata, ModelService's GetModelStatus, the RESTful API's predict, status and metadata), takes the server's
flags, loads a SavedModel as the server does (graph and session, warm-up requests replayed) with TensorFlow and TF-Text
alone, and merges requests by the server's rules. What it cannot show: the server's own TensorFlow, its speed, its
threads, its reloading of versions and files, its metrics. When it is ready it prints one line of JSON: its ports.
"""

import argparse
import json
import os
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

import grpc
import stand_in_rest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (the SentencePiece ops, which the server has built in)
from google.protobuf import text_format
from stand_in_batching import Batcher, read_parameters
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

V1 = tf.compat.v1
MOST_WARMUP_RECORDS = 1000  # kMaxNumRecords in the server's warmup_consts.h


class Servable:
    """One version of a model: a session on its graph, as in the server."""

    def __init__(self, path, threads=(0, 0)):
        self.path, self.version = path, int(path.name)
        saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        self.signatures = dict(saved.meta_graphs[0].signature_def)
        intra, inter = threads
        config = V1.ConfigProto(intra_op_parallelism_threads=intra, inter_op_parallelism_threads=inter)
        graph = tf.Graph()
        self.session = V1.Session(graph=graph, config=config)
        with graph.as_default():
            V1.saved_model.loader.load(self.session, ["serve"], str(path))
        graph.finalize()

    def signature(self, name):
        if (name or "serving_default") not in self.signatures:
            raise tf.errors.InvalidArgumentError(
                None, None, f'Serving signature name: "{name}" not found in signature def'
            )
        return self.signatures[name or "serving_default"]

    def run(self, signature, inputs, timeout):
        signature = self.signature(signature)
        sent, needed = sorted(inputs), sorted(signature.inputs)
        if sent != needed:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"input size does not match signature: {len(sent)}!={len(needed)}. Sent: {sent}. Required: {needed}.",
            )
        feed = {signature.inputs[name].name: value for name, value in inputs.items()}
        fetch = {name: info.name for name, info in signature.outputs.items()}
        options = V1.RunOptions(timeout_in_ms=max(1, int(timeout * 1000)))
        try:
            return self.session.run(fetch, feed, options=options)
        except ValueError as error:  # Python's session sees a wrong rank before the graph does
            raise tf.errors.InvalidArgumentError(None, None, str(error)) from None

    def warm_up(self):
        """Replays the requests that lie beside the model; returns how many."""
        file = self.path / "assets.extra" / "tf_serving_warmup_requests"
        if not file.exists():
            return 0
        records = [record.numpy() for record in tf.data.TFRecordDataset([str(file)])]
        if len(records) > MOST_WARMUP_RECORDS:
            raise ValueError(f"Number of warmup records exceeds the maximum ({MOST_WARMUP_RECORDS}) at {file}")
        for record in records:
            request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
            inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
            self.run(request.model_spec.signature_name, inputs, 600)
        return len(records)


class Models:
    """The models of a configuration, each with its served versions."""

    def __init__(self, config, batching=None, threads=(0, 0)):
        self.models, self.labels, self.batchers, self.warmed_up = {}, {}, {}, 0
        self.batching = batching
        for model in config.model_config_list.config:
            there = sorted(int(path.name) for path in Path(model.base_path).iterdir() if path.name.isdecimal())
            policy = model.model_version_policy
            wanted = policy.specific.versions or (
                there if policy.HasField("all") else there[-(policy.latest.num_versions or 1) :]
            )
            versions = [Servable(Path(model.base_path) / str(version), threads) for version in sorted(wanted)]
            self.models[model.name] = {servable.version: servable for servable in versions}
            self.labels[model.name] = dict(model.version_labels)
            self.warmed_up += sum(servable.warm_up() for servable in versions)

    def find(self, name, version=None, label=None):
        versions = self.models.get(name, {})
        if label:
            version = self.labels.get(name, {}).get(label, -1)
        if version is None and versions:
            version = max(versions)
        if version not in versions:
            wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise tf.errors.NotFoundError(None, None, f"Servable not found for request: {wanted}")
        return versions[version]

    def run(self, servable, signature, inputs, timeout):
        servable.signature(signature)
        if self.batching is None:
            return servable.run(signature, inputs, timeout)
        key = id(servable)
        if key not in self.batchers:
            self.batchers[key] = Batcher(servable.run, self.batching)
        return self.batchers[key](signature or "serving_default", inputs, timeout)

    def status(self, name, version=None):
        if name not in self.models or (version is not None and version not in self.models[name]):
            raise tf.errors.NotFoundError(None, None, f"Could not find any versions of model {name}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for number in sorted(self.models[name], reverse=True):
            if version in (None, number):
                response.model_version_status.add(version=number, state="AVAILABLE").status.SetInParent()
        return response

    def metadata(self, name, version=None):
        servable = self.find(name, version)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for key, value in servable.signatures.items():
            signatures.signature_def[key].CopyFrom(value)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = name
        response.model_spec.version.value = servable.version
        response.metadata["signature_def"].Pack(signatures)
        return response


def of_spec(spec):
    """A ModelSpec as the arguments of `Models.find`."""
    return spec.name, spec.version.value if spec.HasField("version") else None, spec.version_label or None


class Services(prediction_service_pb2_grpc.PredictionServiceServicer, model_service_pb2_grpc.ModelServiceServicer):
    """The gRPC services, as far as they are spoken here."""

    def __init__(self, models):
        self.models = models

    def Predict(self, request, context):
        return self.answer(context, self.predict, request, context.time_remaining())

    def GetModelMetadata(self, request, context):
        return self.answer(context, self.models.metadata, *of_spec(request.model_spec)[:2])

    def GetModelStatus(self, request, context):
        return self.answer(context, self.models.status, *of_spec(request.model_spec)[:2])

    def predict(self, request, remaining):
        servable = self.models.find(*of_spec(request.model_spec))
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        signature = request.model_spec.signature_name
        outputs = self.models.run(servable, signature, inputs, 600 if remaining is None else remaining)
        response = predict_pb2.PredictResponse()
        response.model_spec.name, response.model_spec.version.value = request.model_spec.name, servable.version
        response.model_spec.signature_name = signature or "serving_default"
        for name, value in outputs.items():
            if not request.output_filter or name in request.output_filter:
                dtype = tf.as_dtype(servable.signature(signature).outputs[name].dtype)
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value, dtype, value.shape))
        return response

    def answer(self, context, call, *arguments):
        try:
            return call(*arguments)
        except tf.errors.OpError as error:
            code = next(code for code in grpc.StatusCode if code.value[0] == error.error_code)
            return context.abort(code, error.message)


def start(models, port=0, rest_api_port=0, timeout=30.0):
    """Both servers on 127.0.0.1: the gRPC server, its port, and the HTTP server."""
    server = grpc.server(futures.ThreadPoolExecutor(64), options=[("grpc.max_receive_message_length", -1)])
    services = Services(models)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(services, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(services, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port, stand_in_rest.serve(models, rest_api_port, timeout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name", default="default")
    parser.add_argument("--model_base_path")
    parser.add_argument("--model_config_file")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rest_api_port", type=int, default=0)
    parser.add_argument("--rest_api_timeout_in_ms", type=int, default=30_000)
    parser.add_argument("--enable_batching", action="store_true")
    parser.add_argument("--batching_parameters_file")
    parser.add_argument("--tensorflow_intra_op_parallelism", type=int, default=0)
    parser.add_argument("--tensorflow_inter_op_parallelism", type=int, default=0)
    parser.add_argument("--end_with_stdin", action="store_true", help="end when standard input does, with the parent")
    args = parser.parse_args()
    config = model_server_config_pb2.ModelServerConfig()
    if args.model_config_file:
        text_format.Parse(Path(args.model_config_file).read_text(encoding="utf-8"), config)
    else:
        config.model_config_list.config.add(name=args.model_name, base_path=args.model_base_path)
    batching = None
    if args.enable_batching:
        file = args.batching_parameters_file
        batching = read_parameters(Path(file).read_text(encoding="utf-8") if file else "")
    began = time.monotonic()
    threads = args.tensorflow_intra_op_parallelism, args.tensorflow_inter_op_parallelism
    models = Models(config, batching, threads)
    _, port, rest = start(models, args.port, args.rest_api_port, args.rest_api_timeout_in_ms / 1000)
    loaded = sorted({"keras_transformer", "sentencepiece"} & sys.modules.keys())
    ready = {"port": port, "rest_api_port": rest.server_address[1], "needlessly_loaded": loaded}
    print(json.dumps({**ready, "warmed_up": models.warmed_up, "seconds": time.monotonic() - began}), flush=True)
    if args.end_with_stdin:
        sys.stdin.read()
        os._exit(0)  # with whatever runs in other threads
    threading.Event().wait()


if __name__ == "__main__":
    main()
