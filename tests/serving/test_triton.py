"""Triton on a bundle's ONNX file answers as version 2 of the Open Inference Protocol says, with batching and without.

NVIDIA's server as a Python package, in an environment of its own without capszoo; it needs a Python with a shared
library.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from serving.servers import KIT, Server, bundle_of, free_port, get

pytestmark = pytest.mark.slow

GRPC_CLIENT = """
import json, sys
import numpy as np
from pytriton.client import ModelClient

with ModelClient(f"grpc://{sys.argv[1]}", sys.argv[2]) as client:
    answer = client.infer_batch(images=np.load(sys.argv[3]))
print(json.dumps({name: value.tolist() for name, value in answer.items()}))
"""


class Triton(Server):
    """REST of version 2."""

    @property
    def model(self):
        return f"{self.url}/v2/models/{self.name}"

    def infer(self, body):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.model}/infer", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def asked(images, **changed):
    images = np.asarray(images)
    tensor = {
        "name": "images",
        "shape": list(images.shape),
        "datatype": "FP32",
        "data": images.ravel().tolist(),
    }
    return {"inputs": [tensor | changed]}


def outputs(answer):
    return {part["name"]: np.reshape(part["data"], part["shape"]) for part in answer["outputs"]}


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory):
    """An environment with Triton, of a Python whose library is shared, which Triton loads."""
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("this Python has no shared library")
    python = tmp_path_factory.mktemp("triton") / "environment" / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, python.parents[1]], check=True)
    subprocess.run(
        [*uv, "pip", "install", "-q", "--python", python, "nvidia-pytriton", "onnxruntime"], check=True
    )
    return python


# An efficient network, and one whose routing is a loop; batching waits for two milliseconds, or for nothing.
@pytest.fixture(
    scope="module",
    params=[("efficient_mnist", 2000), ("efficient_mnist", 0), ("matrix_em_mnist", 2000)],
    ids=str,
)
def triton(request, interpreter, tmp_path_factory):
    name, delay = request.param
    http, grpc, metrics = free_port(), free_port(), free_port()
    bundle = bundle_of(name, tmp_path_factory.mktemp("none"))
    ports = ["--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
    command = [
        interpreter,
        KIT / "serving" / "triton_server.py",
        "--bundle",
        bundle,
        "--delay",
        delay,
        *ports,
    ]
    log = tmp_path_factory.mktemp("log") / "log"
    with open(log, "w") as file:
        library = {"LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR")}
        process = subprocess.Popen(
            [str(part) for part in command], stdout=file, stderr=file, env={**os.environ, **library}
        )
    server = Triton(f"http://localhost:{http}", name, bundle)
    server.grpc, server.python = f"localhost:{grpc}", interpreter
    try:
        for _ in range(120):
            try:
                get(server.model)
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                time.sleep(1)
        yield server
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def wanted(triton):
    """What the bundle's SavedModel says in this process."""
    answer = triton.signatures["serving_default"](images=tf.constant(triton.images))
    return {name: value.numpy() for name, value in answer.items()}


def test_it_says_what_it_takes_and_gives(triton, wanted):
    described = get(triton.model)
    (images,) = described["inputs"]
    assert (images["name"], images["datatype"], images["shape"]) == ("images", "FP32", [-1, 28, 28, 1])
    assert {part["name"] for part in described["outputs"]} == set(wanted)


def test_rest_says_what_the_saved_model_says(triton, wanted):
    status, answer = triton.infer(asked(triton.images))
    assert status == 200
    for name, values in outputs(answer).items():
        triton.close(values, wanted[name], name)


def test_grpc_says_the_same(triton, wanted, tmp_path):
    np.save(tmp_path / "images.npy", triton.images)
    command = [triton.python, "-c", GRPC_CLIENT, triton.grpc, triton.name, tmp_path / "images.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name, values in json.loads(done.stdout.splitlines()[-1]).items():
        triton.close(np.reshape(values, wanted[name].shape), wanted[name], name)


REFUSED = {
    "another shape": asked(np.zeros((1, 28, 27, 1))),
    "another rank": asked(np.zeros((1, 28, 28))),
    "more images than a batch": asked(np.zeros((33, 28, 28, 1))),
    "another type": asked(np.zeros((1, 28, 28, 1)), datatype="INT32"),
    "another input": asked(np.zeros((1, 28, 28, 1)), name="pictures"),
    "too few numbers": asked(np.zeros((1, 28, 28, 1)), data=[0.0]),
    "no inputs": {},
    "no JSON": b"\x00\xff{",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_an_error_object_and_the_server_goes_on(triton, what):
    status, answer = triton.infer(REFUSED[what])
    assert 400 <= status < 600, answer
    assert isinstance(answer["error"], str)
    assert triton.infer(asked(triton.images[:1]))[0] == 200


def test_clients_whose_requests_are_merged_get_their_own_answers(triton, wanted):
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        asking = [pool.submit(triton.infer, asked(triton.images[number % 3][None])) for number in range(48)]
        for number, answer in enumerate(future.result() for future in asking):
            assert answer[0] == 200
            triton.close(outputs(answer[1])["scores"][0], wanted["scores"][number % 3], "scores")


def test_under_load_good_requests_are_answered_beside_garbage(triton, load, request):
    bodies = [json.dumps(asked(image[None])).encode() for image in triton.images]
    for clients in (1, 8, 32):
        seen = load.load(f"{triton.model}/infer", bodies, clients, 3.0, garbage=clients > 8)
        print(request.node.callspec.id, clients, seen)
        assert (seen["failed"], seen["accepted"]) == (0, 0)
        assert 0 < seen["p50"] <= seen["p99"] < 20_000
