"""A real model server on a published bundle answers as TensorFlow Serving's public description of REST says.

KServe's model server, in an environment of its own without capszoo, started by `capszoo serve`. Where the environment
variable `CAPSZOO_SERVER` is an address, such as http://localhost:8501, the TensorFlow Serving that listens there, with
the bundle as `efficient_mnist`, is asked instead; its gRPC is at `CAPSZOO_SERVER_GRPC`.
"""

import base64
import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

KIT = Path(__file__).parents[2] / "export"
NAME = "efficient_mnist"
BUNDLE = KIT / "models" / NAME / "1"
PICTURES = [path.read_bytes() for path in sorted((BUNDLE / "assets.extra" / "examples").glob("*.png"))]
HUGE = 2048

pytestmark = pytest.mark.slow

GRPC_CLIENT = """
import asyncio, json, sys
import numpy as np
import kserve

async def ask(address, values):
    client = kserve.InferenceGRPCClient(address)
    images = kserve.InferInput("images", list(values.shape), "FP32")
    images.set_data_from_numpy(values)
    answer = await client.infer(kserve.InferRequest(infer_inputs=[images], model_name="efficient_mnist"))
    await client.close()
    return {part.name: part.as_numpy().tolist() for part in answer.outputs}

print(json.dumps(asyncio.run(ask(sys.argv[1], np.load(sys.argv[2])))))
"""


class TensorFlowServing:
    """What listens at `CAPSZOO_SERVER`."""

    def __init__(self, url):
        self.url = url

    def available(self):
        (version,) = get(f"{self.url}/v1/models/{NAME}")["model_version_status"]
        return version["state"] == "AVAILABLE"

    def input_shape(self):
        signatures = get(f"{self.url}/v1/models/{NAME}/metadata")["metadata"]["signature_def"]
        shape = signatures["signature_def"]["serving_default"]["inputs"]["images"]["tensor_shape"]
        return [int(part["size"]) for part in shape["dim"]]

    def over_grpc(self, images, folder):
        import grpc
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

        request = predict_pb2.PredictRequest()
        request.model_spec.name = NAME
        request.inputs["images"].CopyFrom(tf.make_tensor_proto(images))
        with grpc.insecure_channel(os.environ["CAPSZOO_SERVER_GRPC"]) as channel:
            answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
        return {name: tf.make_ndarray(value) for name, value in answer.outputs.items()}


class KServe:
    """KServe's model server; V2 of the protocol has its metadata and its gRPC."""

    def __init__(self, url, grpc, python):
        self.url, self.grpc, self.python = url, grpc, python

    def available(self):
        return get(f"{self.url}/v1/models/{NAME}")["ready"]

    def input_shape(self):
        (images,) = get(f"{self.url}/v2/models/{NAME}")["inputs"]
        assert (images["name"], images["datatype"]) == ("images", "FP32")
        return images["shape"]

    def over_grpc(self, images, folder):
        np.save(folder / "images.npy", images)
        command = [self.python, "-c", GRPC_CLIENT, self.grpc, folder / "images.npy"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def get(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return json.load(response)


def post(server, body):
    """Status and answer, parsed, of a prediction; `body` is JSON, or bytes that may be none."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.url}/v1/models/{NAME}:predict", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("localhost", 0))
        return any_port.getsockname()[1]


@contextlib.contextmanager
def kserve(folder):
    python = folder / "environment" / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, python.parents[1]], check=True)
    subprocess.run([*uv, "pip", "install", "-q", "--python", python, "kserve", "tensorflow-cpu"], check=True)
    http, grpc = free_port(), free_port()
    command = [Path(sys.executable).with_name("capszoo"), "serve", NAME, "--python", python]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [*command, "--port", str(http), "--grpc-port", str(grpc)],
            cwd=folder, env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    server = KServe(f"http://localhost:{http}", f"localhost:{grpc}", python)
    try:
        for _ in range(120):
            with contextlib.suppress(OSError):
                if server.available():
                    break
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(1)
        yield server
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if os.environ.get("CAPSZOO_SERVER"):
        yield TensorFlowServing(os.environ["CAPSZOO_SERVER"].rstrip("/"))
        return
    with kserve(tmp_path_factory.mktemp("kserve")) as started:
        yield started


@pytest.fixture(scope="module")
def expected():
    """Images, and what the bundle says of them in this process."""
    images = np.random.default_rng(0).random((3, 28, 28, 1), dtype="float32")
    serving = tf.saved_model.load(str(BUNDLE)).signatures["serving_default"]
    return images, {name: value.numpy() for name, value in serving(images=tf.constant(images)).items()}


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_it_is_available_and_says_what_it_takes(server):
    assert server.available()
    assert server.input_shape() == [-1, 28, 28, 1]


def test_a_model_that_it_has_not_is_an_error_object(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{server.url}/v1/models/nothing")
    assert refused.value.code == 404
    assert json.load(refused.value)["error"]


def test_rows_get_rows(server, expected):
    images, wanted = expected
    for rows in (images.tolist(), [{"images": image.tolist()} for image in images]):
        status, answer = post(server, {"signature_name": "serving_default", "instances": rows})
        assert status == 200
        for name, values in wanted.items():
            close([row[name] for row in answer["predictions"]], values)


def test_columns_get_columns(server, expected):
    images, wanted = expected
    for columns in (images.tolist(), {"images": images.tolist()}):
        status, answer = post(server, {"inputs": columns})
        assert status == 200
        for name, values in wanted.items():
            close(answer["outputs"][name], values)


def test_grpc_says_the_same(server, expected, tmp_path):
    images, wanted = expected
    answer = server.over_grpc(images, tmp_path)
    for name, values in wanted.items():
        close(np.reshape(answer[name], values.shape), values)


def test_pictures_in_base64_are_read(server):
    rows = [{"b64": base64.b64encode(picture).decode()} for picture in PICTURES]
    status, answer = post(server, {"signature_name": "predict_bytes", "instances": rows})
    assert status == 200
    local = tf.saved_model.load(str(BUNDLE)).signatures["predict_bytes"](image_bytes=tf.constant(PICTURES))
    close([row["scores"] for row in answer["predictions"]], local["scores"])


def image(value=0.5, shape=(28, 28, 1)):
    return np.full(shape, value).tolist()


REFUSED = {
    "values above one": {"instances": [image(2.0)]},
    "a NaN among others": b'{"instances": [' + json.dumps(image()).replace("0.5", "NaN", 1).encode() + b"]}",
    "another shape": {"instances": [image(shape=(28, 27, 1))]},
    "another rank": {"instances": [image(shape=(28, 28))]},
    "rows of several shapes": {"instances": [image(), image(shape=(2, 2, 1))]},
    "words": {"instances": ["seven"]},
    "an empty batch": {"instances": []},
    "an empty column": {"inputs": []},
    "another input": {"inputs": {"pictures": [image()]}},
    "no such signature": {"signature_name": "nothing", "instances": [image()]},
    "rows and columns": {"instances": [image()], "inputs": [image()]},
    "neither": {},
    "no object": [],
    "no JSON": b"\x00\xff{",
    "no base64": {"signature_name": "predict_bytes", "instances": [{"b64": "!"}]},
    "no picture": {"signature_name": "predict_bytes", "instances": [{"b64": "AAAA"}]},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_an_error_object_and_the_server_goes_on(server, what):
    status, answer = post(server, REFUSED[what])
    assert 400 <= status < 500, answer
    assert isinstance(answer["error"], str)
    assert answer["error"]
    assert post(server, {"instances": [image()]})[0] == 200


def test_a_huge_batch_is_answered_row_by_row(server, expected):
    images, wanted = expected
    status, answer = post(server, {"inputs": np.resize(images, (HUGE, 28, 28, 1)).round(4).tolist()})
    assert status == 200
    scores = np.asarray(answer["outputs"]["scores"])
    np.testing.assert_allclose(scores, np.resize(wanted["scores"], scores.shape), atol=1e-3)


def test_clients_at_the_same_time_get_their_own_answers(server, expected):
    images, wanted = expected
    answers = {}

    def ask(number):
        answers[number] = post(server, {"instances": [images[number % 3].tolist()]})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (status, answer) in answers.items():
        assert status == 200
        close(answer["predictions"][0]["scores"], wanted["scores"][number % 3])


def test_under_load_good_requests_are_answered_beside_garbage(server):
    specification = importlib.util.spec_from_file_location("load", KIT / "clients" / "load.py")
    load = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(load)
    bodies = load.requests(PICTURES)
    for clients in (1, 8, 32):
        seen = load.load(f"{server.url}/v1/models/{NAME}", bodies, clients, 2.0, garbage=clients > 8)
        print(clients, seen)
        assert (seen["failed"], seen["accepted"]) == (0, 0)
        assert 0 < seen["p50"] <= seen["p99"] < 20_000
        assert seen["requests"] > 1
    with pytest.raises(ValueError, match="this machine only"):
        load.load("http://example.org/v1/models/x", bodies, 1, 1.0)
