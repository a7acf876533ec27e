"""A published bundle behind KServe's model server, for machines that have Python but no TensorFlow Serving.

pip install kserve tensorflow-cpu
python kserve_server.py --model_name efficient_mnist --bundle models/efficient_mnist/1 [--http_port 8501]

REST V1 as TensorFlow Serving has it: `instances` (rows) or `inputs` (columns), `signature_name`, `{"b64": ...}`. V2 and
its gRPC: the signature `serving_default`.
"""

import argparse
import asyncio
import base64
import json
import uuid

import kserve
import numpy as np
import tensorflow as tf
from kserve.errors import InvalidInput
from kserve.model_server import parser as options_of_the_server

# Of the Open Inference Protocol.
DATATYPES = {tf.float32: "FP32", tf.string: "BYTES"}


class Bundle(kserve.Model):
    """One version of a bundle.

    where:
      name: of the model, in addresses.
      folder: the version's, with `saved_model.pb` in it.
    """

    def __init__(self, name, folder):
        super().__init__(name)
        self.folder = folder

    def load(self):
        self.model = tf.saved_model.load(self.folder)
        self.ready = True
        return self.ready

    async def predict(self, payload, headers=None):
        # In a thread: other requests, and the probes of Kubernetes, are answered meanwhile.
        answer = self._infer if isinstance(payload, kserve.InferRequest) else self._predict
        return await asyncio.to_thread(answer, payload)

    def _predict(self, payload):
        """REST V1."""
        payload = _parsed(payload)
        if not isinstance(payload, dict) or ("instances" in payload) == ("inputs" in payload):
            raise InvalidInput("a JSON object with either 'instances' or 'inputs' is needed")
        signature = self._signature(payload.get("signature_name", "serving_default"))
        names = _inputs(signature)
        columns = _of_rows(payload["instances"], names) if "instances" in payload else payload["inputs"]
        if not isinstance(columns, dict) or set(columns) != set(names):
            if len(names) != 1:
                raise InvalidInput(f"values of {sorted(names)} are needed")
            columns = dict.fromkeys(names, columns)
        outputs = _run(signature, {name: _tensor(columns[name], names[name].dtype) for name in names})
        columns = {name: value.tolist() for name, value in outputs.items()}
        return {"outputs": _unnamed(columns)} if "inputs" in payload else {"predictions": _rows(columns)}

    def _infer(self, request):
        """REST V2 and gRPC."""
        signature = self._signature("serving_default")
        given = {part.name: _given(part) for part in request.inputs}
        if set(given) != set(_inputs(signature)):
            raise InvalidInput(f"tensors {sorted(_inputs(signature))} are needed. Received: {sorted(given)}")
        wanted = {part.name for part in request.request_outputs or ()} or set(signature.structured_outputs)
        if unknown := wanted - set(signature.structured_outputs):
            raise InvalidInput(
                f"no outputs {sorted(unknown)}; there are {sorted(signature.structured_outputs)}"
            )
        answer = []
        for name, value in _run(signature, given).items():
            if name not in wanted:
                continue
            part = kserve.InferOutput(name, list(value.shape), DATATYPES[tf.as_dtype(value.dtype)])
            part.set_data_from_numpy(value, binary_data=False)
            answer.append(part)
        # Of REST an answer without a name is refused by the server itself.
        return kserve.InferResponse(request.id or uuid.uuid4().hex, self.name, answer)

    def _signature(self, name):
        if not isinstance(name, str) or name not in self.model.signatures:
            raise InvalidInput(f"no signature {name!r}; there are {sorted(self.model.signatures)}")
        return self.model.signatures[name]

    def get_input_types(self):
        return [_described(name, spec) for name, spec in _inputs(self._signature("serving_default")).items()]

    def get_output_types(self):
        outputs = self._signature("serving_default").structured_outputs
        return [_described(name, spec) for name, spec in outputs.items()]


def _parsed(payload):
    """JSON, also of clients that do not say that it is JSON."""
    if not isinstance(payload, bytes):
        return payload
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}") from error


def _inputs(signature):
    """Name -> specification of what a signature takes."""
    return signature.structured_input_signature[1]


def _described(name, spec):
    return {"name": name, "datatype": DATATYPES[spec.dtype], "shape": [size or -1 for size in spec.shape]}


def _of_rows(rows, names):
    """Columns of rows, which are values of the only input or objects of name and value."""
    if not isinstance(rows, list) or not rows:
        raise InvalidInput("'instances' must be a list that is not empty")
    if not all(isinstance(row, dict) and set(row) == set(names) for row in rows):
        return rows
    return {name: [row[name] for row in rows] for name in names}


def _unnamed(columns):
    """What TensorFlow Serving makes of columns: a single one comes without its name."""
    return columns if len(columns) > 1 else next(iter(columns.values()))


def _rows(columns):
    """Objects of name and value, one for each row; of a single column its values."""
    if len(columns) == 1:
        return _unnamed(columns)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _tensor(values, dtype):
    """Numbers, or strings of objects `{"b64": ...}`."""
    try:
        if dtype == tf.string:
            # Lines, as `base64` writes them, are no garbage.
            values = [base64.b64decode("".join(value["b64"].split()), validate=True) for value in values]
            return tf.constant(values, tf.string)
        array = np.asarray(values)
        if array.dtype.kind not in "iuf":  # NumPy would read strings as numbers.
            raise TypeError("numbers are needed")
        return tf.constant(array.astype(dtype.as_numpy_dtype))
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise InvalidInput(f"values are not {dtype.name}: {error}") from error


def _given(part):
    """The tensor of a part of a request."""
    try:
        if (
            part.data is not None
            and part.datatype != "BYTES"
            and np.asarray(part.data).dtype.kind not in "iuf"
        ):
            raise TypeError("numbers are needed")  # NumPy would read strings as numbers.
        return tf.constant(part.as_numpy())
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise InvalidInput(f"{part.name} is no {part.datatype} of {part.shape}: {error}") from error


def _run(signature, tensors):
    """Arrays by name. Errors: `InvalidInput` with the words of the model where it refuses."""
    try:
        return {name: value.numpy() for name, value in signature(**tensors).items()}
    except (tf.errors.InvalidArgumentError, TypeError, ValueError) as error:
        raise InvalidInput(getattr(error, "message", str(error))) from error


def main():
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(parents=[options_of_the_server], conflict_handler="resolve")
    parser.add_argument("--bundle", required=True, help="folder of one version")
    options = parser.parse_args()
    if options.workers != 1:
        parser.error("--workers is 1: start several servers behind a balancer")
    model = Bundle(options.model_name, options.bundle)
    model.load()
    kserve.ModelServer(
        http_port=options.http_port, grpc_port=options.grpc_port, workers=1, enable_grpc=options.enable_grpc
    ).start([model])


if __name__ == "__main__":
    main()
