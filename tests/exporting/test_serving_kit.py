"""The deployment kit in export/: manifests that name what exists, and clients that call a server."""

import base64
import json
import re
import shutil
import subprocess
from concurrent import futures
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
import yaml
from exporting.requests import client, toy_server
from google.protobuf import text_format
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from capszoo.data.preprocessing import Preprocessing
from capszoo.exporting.saved_model import BATCH_SIZES, BATCHING_PARAMETERS, Signatures

KIT = Path(__file__).parents[2] / "export"
SERVING = KIT / "serving"
# Of tensorflow_serving/model_servers/main.cc.
FLAGS = {
    "port", "rest_api_port", "model_config_file", "model_config_file_poll_wait_seconds", "enable_batching",
    "batching_parameters_file", "monitoring_config_file", "enable_grpc_healthcheck_service",
}  # fmt: skip


def manifest(name):
    return list(yaml.safe_load_all((SERVING / name).read_text()))


def containers():
    """Image, arguments and volumes `{path inside: path outside or volume}` of the two servers."""
    compose = manifest("docker-compose.yaml")[0]["services"]["serving"]
    mounts = dict(reversed(volume.split(":")[:2]) for volume in compose["volumes"])
    yield compose["image"], compose["command"], mounts
    pod = manifest("kubernetes.yaml")[0]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}
    yield container["image"], container["args"], mounts


def test_the_list_of_models_is_one_the_server_can_read():
    text = (SERVING / "models.config").read_text()
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    for model in config.model_config_list.config:
        assert model.base_path == f"/models/{model.name}"
        assert model.model_platform == "tensorflow"
    names = [model.name for model in config.model_config_list.config]
    assert sorted(names) == sorted(path.name for path in (SERVING.parent / "models").iterdir())


def test_the_server_pads_to_the_batch_sizes_that_were_warmed_up():
    for text in ((SERVING / "batching_parameters.txt").read_text(), BATCHING_PARAMETERS):
        assert tuple(map(int, re.findall(r"^allowed_batch_sizes: (\d+)$", text, re.M))) == BATCH_SIZES
        values = dict(re.findall(r"^(\w+) \{ value: (\w+) \}$", text, re.M))
        assert int(values["max_execution_batch_size"]) == BATCH_SIZES[-1]
        # Larger requests are split, as long as the queue holds all of their parts.
        assert values["enable_large_batch_splitting"] == "true"
        assert int(values["max_batch_size"]) == int(values["max_enqueued_batches"]) * BATCH_SIZES[-1]


@pytest.mark.parametrize("server", list(containers()), ids=["compose", "kubernetes"])
def test_servers_get_flags_that_exist_and_files_that_are_mounted(server):
    _, arguments, mounts = server
    flags = dict(argument.removeprefix("--").split("=") for argument in arguments)
    assert set(flags) <= FLAGS
    assert {"/models", "/config"} == set(mounts)
    for path in (value for value in flags.values() if value.startswith("/")):
        assert (SERVING / path.removeprefix("/config/")).is_file()


def test_the_service_reaches_the_ports_of_the_deployment():
    deployment, service = manifest("kubernetes.yaml")
    template = deployment["spec"]["template"]
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    assert service["spec"]["selector"] == template["metadata"]["labels"]


def test_every_manifest_runs_the_same_version_of_the_server():
    (inference,) = manifest("kserve.yaml")
    assert inference["spec"]["predictor"]["model"]["modelFormat"] == {"name": "tensorflow"}
    version = inference["spec"]["predictor"]["model"]["runtimeVersion"]
    assert {image for image, _, _ in containers()} == {f"tensorflow/serving:{version}"}


def test_the_kits_page_names_what_exists():
    named = set(re.findall(r"\bexport/[\w./*-]*\w|\S+\.png\b", (KIT / "README.md").read_text()))
    assert any(path.endswith(".png") for path in named)
    for path in named:
        assert list(KIT.parent.glob(path)), path


# Clients, against servers that answer as TensorFlow Serving's documentation says


@pytest.fixture(scope="module")
def signatures(tiny_model):
    return Signatures(tiny_model, Preprocessing(), (28, 28, 1), ("class_capsules",))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    levels = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 1), dtype="uint8")
    paths = [folder / f"{i}.png" for i in range(3)]
    for path, picture in zip(paths, levels, strict=True):
        path.write_bytes(tf.io.encode_png(picture).numpy())
    return paths


@pytest.fixture
def expected(signatures, pictures):
    return signatures.predict_bytes(tf.constant([path.read_bytes() for path in pictures]))["scores"].numpy()


@pytest.fixture
def rest(signatures):
    def answer(path, body):
        assert path == "/v1/models/efficient_mnist:predict"
        request = json.loads(body)
        assert request["signature_name"] == "predict_bytes"
        images = [base64.b64decode(row["b64"], validate=True) for row in request["instances"]]
        try:
            outputs = signatures.predict_bytes(tf.constant(images))
        except tf.errors.InvalidArgumentError as error:
            return 400, {"error": error.message}
        rows = zip(*map(np.asarray, outputs.values()), strict=True)
        return 200, {"predictions": [{"scores": s.tolist(), "poses": p.tolist()} for s, p in rows]}

    with toy_server(answer) as url:
        yield f"{url}/v1/models/efficient_mnist"


@pytest.fixture
def rpc(signatures):
    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            assert (request.model_spec.name, request.model_spec.signature_name) == (
                "efficient_mnist",
                "predict_bytes",
            )
            inputs = {key: tf.constant(tf.make_ndarray(tensor)) for key, tensor in request.inputs.items()}
            response = predict_pb2.PredictResponse()
            for key, value in signatures.predict_bytes(**inputs).items():
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    yield f"localhost:{port}"
    server.stop(None)


def test_the_rest_client_gets_scores_and_poses(rest, pictures, expected):
    answers = client("predict_rest").predict(rest, [path.read_bytes() for path in pictures])
    np.testing.assert_allclose([answer["scores"] for answer in answers], expected, atol=1e-6)
    assert np.shape(answers[0]["poses"]) == (10, 16)


def test_the_rest_client_prints_the_class_of_a_network_with_one_output(monkeypatch, capsys, pictures):
    with toy_server(lambda path, body: (200, {"predictions": [[0.25, 0.75]]})) as url:
        monkeypatch.setattr(
            "sys.argv", ["predict_rest.py", str(pictures[0]), "--url", f"{url}/v1/models/net"]
        )
        client("predict_rest").main()
    assert capsys.readouterr().out == f"{pictures[0]}: class 1, score 0.750\n"


@pytest.mark.parametrize("name", ["predict_rest", "predict_grpc", "load"])
def test_a_client_says_a_mistake_in_one_line(name, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", [f"{name}.py", str(tmp_path / "nope.png")])
    with pytest.raises(SystemExit, match=r"^error: .*nope\.png"):
        client(name).main()


def test_the_rest_client_says_that_no_server_answers(monkeypatch, pictures):
    url = "http://localhost:1/v1/models/net"
    monkeypatch.setattr("sys.argv", ["predict_rest.py", str(pictures[0]), "--url", url])
    with pytest.raises(SystemExit, match=r"^error: .*Connection refused"):
        client("predict_rest").main()


def test_the_rest_client_passes_on_the_servers_words(rest):
    with pytest.raises(RuntimeError, match=r"answered 400: .*PNG or JPEG"):
        client("predict_rest").predict(rest, [b"not a picture"])


def test_the_grpc_client_gets_scores_and_poses(rpc, pictures, expected):
    answer = client("predict_grpc").predict(rpc, "efficient_mnist", [path.read_bytes() for path in pictures])
    np.testing.assert_allclose(answer["scores"], expected, atol=1e-6)
    assert answer["poses"].shape == (3, 10, 16)


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_curl_client_gets_scores(rest, pictures, expected):
    result = subprocess.run(
        [KIT / "clients" / "predict.sh", *pictures], env={"MODEL_URL": rest, "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = json.loads(result.stdout)["predictions"]
    np.testing.assert_allclose([answer["scores"] for answer in answers], expected, atol=1e-6)
