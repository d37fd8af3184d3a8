"""An export of the small translator of tests/serving, and stand-ins for the server on top of it."""

import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "serving"
sys.path[:0] = [str(HERE), str(EXAMPLES)]


def _conftest_of_serving():
    spec = importlib.util.spec_from_file_location("conftest_of_serving", HERE.parent / "serving" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_serving = _conftest_of_serving()
pairs, sources, tokenizers, texts = _serving.pairs, _serving.sources, _serving.tokenizers, _serving.texts
train, model, translator, run_python = _serving.train, _serving.model, _serving.translator, _serving.run_python


@pytest.fixture(scope="session")
def examples():
    """The directory of what people copy."""
    return EXAMPLES


@pytest.fixture(scope="session")
def export(translator, tmp_path_factory):
    """The version's directory; its parent is the base directory."""
    return translator.export(tmp_path_factory.mktemp("translator"))


@pytest.fixture(scope="session")
def batching_file(export):
    """The export's own file of batching parameters."""
    return export.parent / "batching_params.pbtxt"


class Running:
    """A stand-in in a process of its own."""

    def __init__(self, process, ready):
        self.pid = process.pid
        self.ready = ready
        self.grpc = f"127.0.0.1:{ready['port']}"
        self.rest = f"127.0.0.1:{ready['rest_api_port']}"

    def megabytes(self):
        """Of memory that the process holds."""
        return int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture(scope="session")
def run_stand_in():
    """`with run_stand_in(*flags) as server`."""

    @contextlib.contextmanager
    def run(*flags):
        command = [sys.executable, str(HERE / "stand_in.py"), "--end_with_stdin", *map(str, flags)]
        environment = {**os.environ, "PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": "", "PYTHONUTF8": "1"}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                line = process.stdout.readline()
                assert line, "the stand-in did not start: see its errors above"
                yield Running(process, json.loads(line))
            finally:
                process.stdin.close()

    return run


@pytest.fixture(scope="session")
def flags(export):
    """For two cores, as in docs/serving.md."""
    threads = ["--tensorflow_intra_op_parallelism=1", "--tensorflow_inter_op_parallelism=2"]
    return ["--model_name=translator", f"--model_base_path={export.parent}", *threads]


@pytest.fixture(scope="session")
def server(flags, run_stand_in):
    """A stand-in without batching."""
    with run_stand_in(*flags) as running:
        yield running


@pytest.fixture(scope="session")
def batching_server(flags, batching_file, run_stand_in):
    """A stand-in that merges requests."""
    with run_stand_in(*flags, "--enable_batching", f"--batching_parameters_file={batching_file}") as running:
        yield running
