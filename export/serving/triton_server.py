"""A published bundle's ONNX file behind NVIDIA's Triton, with its batching, for machines without Triton's container.

pip install nvidia-pytriton onnxruntime       # in a Python whose shared library the loader finds, such as Debian's
python triton_server.py --bundle models/efficient_mnist/1 [--http-port 8000] [--grpc-port 8001] [--delay 2000]

REST and gRPC are those of version 2 of the Open Inference Protocol: POST /v2/models/efficient_mnist/infer. `images` are
float32 in [0, 1]; values are not checked, and nothing reads PNGs, as ever with ONNX. Requests that come within `delay`
microseconds of each other are computed together.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

# As in a bundle's batching_params.pbtxt.
MAX_BATCH = 32


def bind(triton, bundle, delay):
    """Gives `triton` the model of a bundle's folder under the name that the bundle has."""
    name = json.loads((bundle / "export.json").read_text(encoding="utf-8"))["name"]
    session = onnxruntime.InferenceSession(bundle / "onnx" / f"{name}.onnx")

    @batch
    def infer(images):
        outputs = session.run(None, {"images": images})
        return dict(zip((output.name for output in session.get_outputs()), outputs, strict=True))

    triton.bind(
        model_name=name,
        infer_func=infer,
        inputs=[_tensor(part) for part in session.get_inputs()],
        outputs=[_tensor(part) for part in session.get_outputs()],
        config=ModelConfig(
            max_batch_size=MAX_BATCH, batcher=DynamicBatcher(max_queue_delay_microseconds=delay)
        ),
        strict=True,
    )


def _tensor(part):
    """A row's name, type and shape; -1 where the file names no size."""
    shape = tuple(size if isinstance(size, int) else -1 for size in part.shape[1:])
    return Tensor(name=part.name, dtype=np.float32, shape=shape)


def main():
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, required=True, help="the folder of one version")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--grpc-port", type=int, default=8001)
    parser.add_argument("--metrics-port", type=int, default=8002)
    parser.add_argument("--delay", type=int, default=2000, help="microseconds; 0 waits for no one")
    options = parser.parse_args()
    config = TritonConfig(
        http_address=options.address, http_port=options.http_port,
        grpc_address=options.address, grpc_port=options.grpc_port,
        metrics_address=options.address, metrics_port=options.metrics_port,
    )  # fmt: skip
    with Triton(config=config) as triton:
        bind(triton, options.bundle, options.delay)
        triton.serve()


if __name__ == "__main__":
    main()
