"""Scores of pictures over TensorFlow Serving's gRPC: binary tensors instead of base64 in JSON.

pip install tensorflow-serving-api
python predict_grpc.py picture.png ... [--server localhost:8500] [--model efficient_mnist]
A stereo pair is one picture, the left view in its left half.
"""

import argparse
from pathlib import Path

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def predict(server, model, pictures, timeout=10.0):
    """`{"scores": [B, classes], "poses": [B, classes, ...]}` as NumPy arrays, for B encoded pictures.

    Errors: `grpc.RpcError` with the server's own words where it refuses the request.
    """
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = "predict_bytes"
    request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto(list(pictures), tf.string))
    with grpc.insecure_channel(server) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(request, timeout=timeout)
    return {key: tf.make_ndarray(tensor) for key, tensor in response.outputs.items()}


def main():
    """Prints the most active class of each picture and its score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", nargs="+", type=Path)
    parser.add_argument("--server", default="localhost:8500")
    parser.add_argument("--model", default="efficient_mnist")
    options = parser.parse_args()
    try:
        answer = predict(options.server, options.model, [path.read_bytes() for path in options.pictures])
    except (OSError, grpc.RpcError) as error:
        raise SystemExit(
            f"error: {error.details() if isinstance(error, grpc.RpcError) else error}"
        ) from error
    if "scores" not in answer:
        raise SystemExit("this network names no classes: its answer has no scores")
    for path, scores in zip(options.pictures, answer["scores"], strict=True):
        print(f"{path}: class {scores.argmax()}, score {scores.max():.3f}")


if __name__ == "__main__":
    main()
