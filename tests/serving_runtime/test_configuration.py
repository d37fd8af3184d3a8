"""The files in examples/serving fit the protocol's messages, each other, and the stand-in."""

import re
import shutil
import subprocess
import sys

import pytest
from faulty import Faulty, running
from google.protobuf import text_format
from grpc_client import GrpcClient, ServingError
from rest_client import RestClient
from tensorflow_serving.config import model_server_config_pb2


def models_config(text):
    return text_format.Parse(text, model_server_config_pb2.ModelServerConfig())


@pytest.fixture(scope="module")
def compose(examples):
    return (examples / "docker-compose.yml").read_text(encoding="utf-8")


def test_the_models_configuration(examples, compose):
    (model,) = models_config((examples / "models.config").read_text(encoding="utf-8")).model_config_list.config
    assert (model.name, model.model_platform) == ("translator", "tensorflow")
    assert f"target: {model.base_path}\n" in compose
    assert f"--batching_parameters_file={model.base_path}/batching_params.pbtxt" in compose
    assert f"/v1/models/{model.name} " in compose  # the health check


def test_every_file_that_is_named_is_there(examples, compose):
    assert "- .:/etc/serving:ro" in compose
    names = re.findall(r"=/etc/serving/(.+)\n", compose)
    assert sorted(names) == ["models.config", "monitoring.config"]
    assert "- .:/etc/prometheus:ro\n" in compose  # where Prometheus looks for prometheus.yml
    for name in [*names, "prometheus.yml"]:
        assert (examples / name).is_file()


def test_prometheus_asks_where_the_server_answers(examples):
    (path,) = re.findall(r'path: "(.*)"', (examples / "monitoring.config").read_text(encoding="utf-8"))
    prometheus = (examples / "prometheus.yml").read_text(encoding="utf-8")
    assert f"metrics_path: {path}\n" in prometheus
    assert '"translator:8501"' in prometheus


@pytest.mark.skipif(not (shutil.which("bash") and sys.platform == "linux"), reason="bash speaks HTTP on Linux alone")
def test_the_health_check_sees_a_server_that_is_ready(compose, server):
    (script,) = re.findall(r"- >-\n((?: {10}.*\n)+)", compose)
    script = " ".join(script.split("\n")).replace("          ", "")

    def healthy(address, model="translator"):
        command = script.replace("127.0.0.1/8501", address.replace(":", "/")).replace("/translator ", f"/{model} ")
        return subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=10).returncode == 0

    assert healthy(server.rest)
    assert not healthy(server.rest, "other")
    with running(Faulty()) as (_, rest):
        pass
    assert not healthy(rest)  # nobody there any more


def test_back_to_an_older_version(export, translator, run_stand_in, examples, tmp_path):
    """The version is pinned in models.config; labels name versions."""
    base = tmp_path / "translator"
    shutil.copytree(export, base / "1")
    translator.export(base, version=2)
    text = (examples / "models.config").read_text(encoding="utf-8").replace("/models/translator", str(base))
    pinned = text.replace("# model_version_policy", "model_version_policy")
    assert models_config(pinned).model_config_list.config[0].model_version_policy.specific.versions == [1]
    both = pinned.replace("versions: 1", "versions: 1 versions: 2")
    both = both.replace("model_version_policy {", 'version_labels { key: "stable" value: 1 } model_version_policy {')
    for config, served in ((text, [2]), (both, [1, 2])):
        file = tmp_path / "models.config"
        file.write_text(config, encoding="utf-8")
        with run_stand_in(f"--model_config_file={file}") as running_server:
            for version in (1, 2):
                client = GrpcClient(running_server.grpc, version=version)
                if version in served:
                    assert client.translate(["o gato dorme"]) == translator(["o gato dorme"])
                else:
                    with pytest.raises(ServingError, match=f"Specific\\(translator, {version}\\)"):
                        client.translate(["o gato dorme"])
            labelled = RestClient(running_server.rest)
            labelled.path = labelled.path.replace(":predict", "/labels/stable:predict")
            if served == [1, 2]:
                assert labelled.translate(["o gato dorme"]) == translator(["o gato dorme"])
