"""What a SavedModel demands of the server that loads it: operations, their attributes, and XLA."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

# `tools/list_operations.py` writes them.
_LISTS = resources.files("keras_transformer.serving") / "operations"
_XLA_OPERATIONS = ("Xla", "_Xla", "TPU", "_TPU")
_XLA_DEVICES = ("TPU", "XLA_CPU", "XLA_GPU")


def known_servers() -> list[str]:
    """The versions of TensorFlow Serving whose operations are listed, oldest first."""
    names = (path.name for path in _LISTS.iterdir())
    versions = [
        name.removeprefix("tensorflow_serving_").removesuffix(".json") for name in names if name.endswith(".json")
    ]
    return sorted(versions, key=lambda version: [int(part) for part in version.split(".")])


def check_target_server(target_server: str) -> str:
    """Returns the version, or raises `ValueError` where its operations are not listed."""
    if target_server not in known_servers():
        raise ValueError(f"`target_server` must be one of {known_servers()}. Received: target_server={target_server!r}")
    return target_server


def operations(saved_model_directory: str | os.PathLike[str]) -> list[str]:
    """The names of all operations in a SavedModel's graphs and functions, in alphabetical order.

    Raises:
        FileNotFoundError: If there is no `saved_model.pb`.
    """
    graphs = _meta_graphs(saved_model_directory)
    functions = {function.signature.name for graph in graphs for function in graph.graph_def.library.function}
    return sorted({node.op for graph in graphs for node, _ in _nodes(graph)} - functions)


def unknown_operations(saved_model_directory: str | os.PathLike[str], target_server: str) -> list[str]:
    """What a SavedModel says that a server of `target_server` does not understand, in its graphs and functions.

    A server refuses an operation that it does not have, and a node without an attribute that it expects. An attribute
    that it does not know it ignores: that is harmless where the attribute has its default value, and another
    computation where it has not. (`tf.saved_model.save` leaves defaults out.) Functions that nothing calls count too.

    Args:
        saved_model_directory: The directory with `saved_model.pb`.
        target_server: A version of TensorFlow Serving, such as `"2.19"`; `known_servers()` gives them all.

    Returns:
        A line for each operation, or attribute of one, and node; empty if the server knows everything.

    Raises:
        ValueError: If the operations of `target_server` are not listed.
        FileNotFoundError: If there is no `saved_model.pb`.
    """
    server = _operations(check_target_server(target_server))
    found: list[str] = []
    for meta_graph in _meta_graphs(saved_model_directory):
        functions = {function.signature.name for function in meta_graph.graph_def.library.function}
        defaults = _defaults(meta_graph)
        for node, place in _nodes(meta_graph):
            if node.op in functions:
                continue
            if node.op not in server:
                found.append(f"{node.op}: an operation that server {target_server} does not have, {place}")
                continue
            for name in sorted(node.attr):
                # A leading underscore: notes that no operation declares.
                known = name.startswith("_") or name in server[node.op]
                if not known and node.attr[name] != defaults.get((node.op, name)):
                    found.append(f"{node.op}.{name}: an attribute that server {target_server} would ignore, {place}")
            found.extend(
                f"{node.op}.{name}: an attribute that server {target_server} demands, {place}"
                for name, has_default in sorted(server[node.op].items())
                if not has_default and name not in node.attr
            )
    return found


def demands_xla(saved_model_directory: str | os.PathLike[str]) -> list[str]:
    """What in a SavedModel must be compiled by XLA, or needs a device that only XLA serves.

    TensorFlow Serving has XLA on CPU switched off and refuses such functions when they are called.

    Args:
        saved_model_directory: The directory with `saved_model.pb`.

    Returns:
        A line for each function and node; empty if nothing demands XLA.

    Raises:
        FileNotFoundError: If there is no `saved_model.pb`.
    """
    found: list[str] = []
    for meta_graph in _meta_graphs(saved_model_directory):
        for function in meta_graph.graph_def.library.function:
            found.extend(
                f"{name}, function {function.signature.name!r}"
                for name in sorted(function.attr)
                if _is_xla_demand(name, function.attr[name])
            )
        for node, place in _nodes(meta_graph):
            demands = [name for name in sorted(node.attr) if _is_xla_demand(name, node.attr[name])]
            if node.op.startswith(_XLA_OPERATIONS):
                demands.append(f"the operation {node.op}")
            if any(device in node.device.upper() for device in _XLA_DEVICES):
                demands.append(f"the device {node.device}")
            found.extend(f"{demand}, {place}" for demand in demands)
    return found


def _is_xla_demand(name: str, value: AttrValue) -> bool:
    """`_XlaMustCompile` and the like are written with the value false too; TPU's attributes only where they matter."""
    return (name in ("_XlaMustCompile", "_XlaCompile") and value.b) or name.startswith("_tpu")


def _operations(server: str) -> dict[str, dict[str, bool]]:
    """Operation -> attribute -> whether it has a default."""
    lists = json.loads((_LISTS / f"tensorflow_serving_{server}.json").read_text(encoding="utf-8"))
    return {
        operation: {name.removesuffix("?"): name.endswith("?") for name in attributes}
        for section in ("tensorflow", "tensorflow_text")
        for operation, attributes in lists[section].items()
    }


def _defaults(meta_graph: MetaGraphDef) -> dict[tuple[str, str], AttrValue]:
    """(Operation, attribute) -> its default where the SavedModel was made, which the SavedModel says itself."""
    return {
        (operation.name, attribute.name): attribute.default_value
        for operation in meta_graph.meta_info_def.stripped_op_list.op
        for attribute in operation.attr
        if attribute.HasField("default_value")
    }


def _meta_graphs(saved_model_directory: str | os.PathLike[str]) -> list[MetaGraphDef]:
    return list(SavedModel.FromString((Path(saved_model_directory) / "saved_model.pb").read_bytes()).meta_graphs)


def _nodes(meta_graph: MetaGraphDef) -> Iterator[tuple[NodeDef, str]]:
    """Each node and where it is; the library holds all functions, also those that functions call."""
    for node in meta_graph.graph_def.node:
        yield node, f"node {node.name!r}"
    for function in meta_graph.graph_def.library.function:
        for node in function.node_def:
            yield node, f"node {node.name!r} in function {function.signature.name!r}"
