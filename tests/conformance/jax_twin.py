"""Writes what every golden computes on the JAX backend: `KERAS_BACKEND=jax python -m conformance.jax_twin OUT.npz`.

Keys are `kind/golden/what`. Run by `test_jax.py`, once, in a process of its own: a process has one Keras backend.
"""

import sys
import traceback

import jax
import keras
import numpy as np
from conformance.goldens import ARCHITECTURES, LAYERS, ROUTINGS
from support import arrays, fill


def routing_values(golden):
    """Poses, activations, coefficients, the poses of a tensor count and the gradient of the votes."""
    votes, activations = golden.inputs()
    layer = golden.create()
    layer.build(votes.shape)
    fill(layer)
    count = golden.iterations[-1]

    @jax.jit
    def computed(votes, activations, tensor_count):
        def total(votes):
            return jax.numpy.sum(layer(votes, activations, num_iterations=count)[0])

        poses, parents, history = layer(votes, activations, num_iterations=count, return_history=True)
        return {
            "poses": poses,
            "activations": parents,
            "coefficients": history,
            "counted": layer(votes, activations, num_iterations=tensor_count)[0],
            "gradient": jax.grad(total)(votes),
        }

    return computed(votes, activations, count)


def layer_values(golden):
    """The tensors of the output, by number."""
    inputs = golden.arrays()
    layer = golden.create()
    layer(*golden.symbols())
    fill(layer)
    return {str(i): array for i, array in enumerate(arrays(jax.jit(layer)(*inputs)))}


def model_values(golden):
    """Every output by its name."""
    return jax.jit(fill(golden.build(), scale=0.1))(golden.batch()["images"])


def main(path):
    """All goldens into one file; one that fails leaves its traceback and spares the others."""
    values = {}
    for kind, goldens, compute in (
        ("routing", ROUTINGS, routing_values),
        ("layer", LAYERS, layer_values),
        ("model", ARCHITECTURES, model_values),
    ):
        for golden in goldens:
            try:
                computed = compute(golden)
            except Exception:
                computed = {"error": traceback.format_exc()}
            for what, value in computed.items():
                values[f"{kind}/{golden.name}/{what}"] = np.asarray(value)
    imported = "tensorflow" in sys.modules
    np.savez(path, backend=keras.backend.backend(), tensorflow_was_imported=imported, **values)


if __name__ == "__main__":
    main(sys.argv[1])
