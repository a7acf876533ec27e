"""Model servers, asked as their clients ask them."""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import capszoo as zoo
from capszoo.exporting import servers
from capszoo.exporting.verification import REPORT, ROUNDING, ROUNDINGS, TOLERANCE
from capszoo.models.architecture import Classifies
from capszoo.zoo import recipes

NAMES = [name for name in zoo.list_models(pretrained=True) if recipes.read_recipe(name).model.has(Classifies)]
KIT = Path(__file__).parents[2] / "export"
# Seconds until a server must be there, the export included where no bundle is published.
PATIENCE = 1200

GRPC_CLIENT = """
import asyncio, json, sys
import numpy as np
import kserve

async def ask(address, name, values):
    client = kserve.InferenceGRPCClient(address)
    images = kserve.InferInput("images", list(values.shape), "FP32")
    images.set_data_from_numpy(values)
    answer = await client.infer(kserve.InferRequest(infer_inputs=[images], model_name=name))
    await client.close()
    return {part.name: part.as_numpy().tolist() for part in answer.outputs}

print(json.dumps(asyncio.run(ask(sys.argv[1], sys.argv[2], np.load(sys.argv[3])))))
"""


@dataclasses.dataclass
class Server:
    """A server of the bundle in `bundle` as the model `name`; `url` is the server's, without a path."""

    url: str
    name: str
    bundle: Path

    @property
    def model(self):
        return f"{self.url}/v1/models/{self.name}"

    @cached_property
    def report(self):
        return json.loads((self.bundle / REPORT).read_text(encoding="utf-8"))

    @cached_property
    def signatures(self):
        """What the bundle says in this process."""
        return tf.saved_model.load(str(self.bundle)).signatures

    @cached_property
    def pictures(self):
        paths = sorted((self.bundle / "assets.extra" / "examples").glob("*.png"))
        return [path.read_bytes() for path in paths]

    @cached_property
    def images(self):
        with np.load(self.bundle / "assets.extra" / "examples" / "examples.npz") as stored:
            return stored["images"][:3]

    def close(self, found, wanted, output):
        """Asserts what a bundle promises: another build of TensorFlow may round otherwise, routing amplifies that."""
        rounding = json.loads((self.bundle / ROUNDING).read_text(encoding="utf-8"))[output]
        allowed = max(TOLERANCE * max(1.0, float(np.abs(wanted).max())), ROUNDINGS * rounding)
        np.testing.assert_allclose(found, wanted, rtol=0.0, atol=allowed)

    def post(self, body, kind="application/json", address=None):
        """Status and answer, parsed, of a prediction; `body` is JSON, or bytes that may be none."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(address or f"{self.model}:predict", body, {"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


class TensorFlowServing(Server):
    """What listens at `CAPSZOO_SERVER`."""

    may_merge = True

    def available(self):
        (version,) = get(self.model)["model_version_status"]
        return version["state"] == "AVAILABLE"

    def input_shape(self):
        signatures = get(f"{self.model}/metadata")["metadata"]["signature_def"]
        shape = signatures["signature_def"]["serving_default"]["inputs"]["images"]["tensor_shape"]
        return [int(part["size"]) for part in shape["dim"]]

    def over_grpc(self, images, folder):
        return self.rpc("serving_default", images=images)

    def rpc(self, signature, **inputs):
        """What its gRPC answers; a test that asks where none is known is skipped."""
        import grpc
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

        if "CAPSZOO_SERVER_GRPC" not in os.environ:
            pytest.skip("CAPSZOO_SERVER_GRPC is not set")
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.name
        request.model_spec.signature_name = signature
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
        with grpc.insecure_channel(os.environ["CAPSZOO_SERVER_GRPC"]) as channel:
            answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
        return {name: tf.make_ndarray(value) for name, value in answer.outputs.items()}


@dataclasses.dataclass
class KServe(Server):
    """KServe's model server; V2 of the protocol has its metadata and its gRPC."""

    grpc: str
    python: Path
    may_merge = False

    def available(self):
        return get(self.model)["ready"]

    def input_shape(self):
        (images,) = get(f"{self.url}/v2/models/{self.name}")["inputs"]
        assert (images["name"], images["datatype"]) == ("images", "FP32")
        return images["shape"]

    def post_v2(self, outputs=(), **part):
        """Status and answer of one part `images` over V2 of the protocol, of all outputs or those named."""
        body = {"inputs": [{"name": "images", "datatype": "FP32", **part}]}
        if outputs:
            body["outputs"] = [{"name": name} for name in outputs]
        return self.post(body, address=f"{self.url}/v2/models/{self.name}/infer")

    def over_grpc(self, images, folder):
        np.save(folder / "images.npy", images)
        command = [self.python, "-c", GRPC_CLIENT, self.grpc, self.name, folder / "images.npy"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def get(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return json.load(response)


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("localhost", 0))
        return any_port.getsockname()[1]


@contextlib.contextmanager
def kserve(name, python, bundles, folder):
    """What `capszoo serve` starts on the preset `name`."""
    http, grpc = free_port(), free_port()
    command = [
        Path(sys.executable).with_name("capszoo"),
        "serve",
        name,
        "--bundles",
        bundles,
        "--python",
        python,
    ]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [*command, "--port", str(http), "--grpc-port", str(grpc)],
            cwd=folder, env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        server = KServe(f"http://localhost:{http}", name, None, f"localhost:{grpc}", python)
        for _ in range(PATIENCE):
            with contextlib.suppress(OSError):
                if server.available():
                    break
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(1)
        yield dataclasses.replace(server, bundle=bundle_of(name, bundles))
    finally:
        process.terminate()
        process.wait(60)


def bundle_of(name, bundles):
    return servers.newest(bundles / name) or servers.newest(servers.PUBLISHED / name)
