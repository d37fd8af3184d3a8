"""Writes the lists of operations that `keras_transformer/serving/operation_check.py` reads, one a server version.

    python tools/list_operations.py            # all versions
    python tools/list_operations.py 2.20

A server has TensorFlow's operations and those of the target `ops_lib` of the TF-Text that it carries: it links that
target (`SUPPORTED_TENSORFLOW_OPS` in its `tensorflow_serving/model_servers/BUILD`; the version is in its
`tensorflow_serving/workspace.bzl`). TF-Text's wheels are made of the same rules, a library a rule. The server's few
operations of TensorFlow Decision Forests are left out.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from serving_wheels import ROOT, WHEELS, fetch
from tensorflow.core.framework.op_def_pb2 import OpDef, OpList

# A server's version -> the wheels of its TensorFlow and of its TF-Text, as `WHEELS` names them.
SERVERS = {"2.18": ("2.18", "2.12"), "2.19": ("2.19", "2.12"), "2.20": ("2.20", "2.20")}
DIRECTORY = ROOT / "keras_transformer" / "serving" / "operations"
# In a process of its own, since the libraries of one TensorFlow alone fit into one.
_READ_REGISTRY = """
import ctypes, sys

class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("deallocator", ctypes.c_void_p)]

framework, tensorflow, *more = [ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL) for library in sys.argv[1:]]
tensorflow.TF_GetAllOpList.restype = ctypes.POINTER(Buffer)
buffer = tensorflow.TF_GetAllOpList().contents
sys.stdout.buffer.write(ctypes.string_at(buffer.data, buffer.length))
"""


def registered(wheels: Path, *more: Path) -> dict[str, OpDef]:
    """All operations that the libraries of an unpacked TensorFlow wheel, and `more`, register."""
    names = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
    libraries = [*(wheels / "tensorflow" / name for name in names), *more]
    result = subprocess.run(
        [sys.executable, "-c", _READ_REGISTRY, *map(str, libraries)], stdout=subprocess.PIPE, check=True
    )
    return {op.name: op for op in OpList.FromString(result.stdout).op}


def attributes(op: OpDef) -> list[str]:
    """The names of an operation's attributes; a question mark after those that a node may leave out."""
    return sorted(attr.name + ("?" if attr.HasField("default_value") else "") for attr in op.attr)


def as_json(head: dict[str, str], sections: dict[str, dict[str, list[str]]]) -> str:
    """An operation a line, so that a difference between two versions is a line."""
    parts = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for name, operations in sections.items():
        lines = [f"    {json.dumps(op)}: {json.dumps(operations[op])}" for op in sorted(operations)]
        parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def list_operations(server: str) -> str:
    """The list of a server's version, as JSON."""
    tensorflow, text = SERVERS[server]
    core = registered(fetch(tensorflow))
    text_wheels = fetch(text)
    libraries = sorted((text_wheels / "tensorflow_text" / "python" / "ops").glob("*.so"))
    without = registered(text_wheels)
    of_text = {name: op for name, op in registered(text_wheels, *libraries).items() if name not in without}
    head = {
        "server": f"TensorFlow Serving {server}",
        "made_by": "tools/list_operations.py",
        "made_from": ", ".join([WHEELS[tensorflow][0], WHEELS[text][-1]]),
        "format": "operation: its attributes; ? marks those that have a default",
    }
    sections = {"tensorflow": core, "tensorflow_text": of_text}
    return as_json(
        head, {section: {name: attributes(op) for name, op in ops.items()} for section, ops in sections.items()}
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Writes the lists of operations of TensorFlow Serving's versions.")
    parser.add_argument("server", nargs="*", metavar="server", help=f"of {', '.join(SERVERS)}; all if none is given")
    servers = parser.parse_args().server or list(SERVERS)
    if unknown := set(servers) - set(SERVERS):
        parser.error(f"known versions are {', '.join(SERVERS)}. Received: {', '.join(sorted(unknown))}")
    DIRECTORY.mkdir(exist_ok=True)
    for server in servers:
        path = DIRECTORY / f"tensorflow_serving_{server}.json"
        path.write_text(list_operations(server))
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
