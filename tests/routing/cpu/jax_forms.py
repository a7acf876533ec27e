"""Compares compiled routing and its graph under JAX: `KERAS_BACKEND=jax python -m routing.cpu.jax_forms KIND ...`.

Run by `test_jax.py` in a process of its own: a process has one Keras backend.
"""

import sys

import jax
import keras
import numpy as np
from routed import KINDS, VECTORS, assert_close, capsules, names_of, posed

from capszoo.routing import cpu


def differentiated(layer, inputs, host_calls):
    """Outputs, and the gradients of a random sum of them, of poses, activations and weights; compiled by XLA."""
    rng = np.random.default_rng(2)
    weights = [np.asarray(weight.value) for weight in layer.trainable_weights]
    slopes = [rng.normal(size=shape).astype("float32") for shape in layer.parent_shapes(len(inputs[0]))]

    def value(inputs, weights):
        (poses, activations), _ = layer.stateless_call(weights, [], inputs)
        total = sum((slope * part).sum() for slope, part in zip(slopes, (poses, activations), strict=True))
        return total, (poses, activations)

    with cpu.host_calls(host_calls):
        gradients, outputs = jax.jit(jax.grad(value, argnums=(0, 1), has_aux=True))(inputs, weights)
    return [np.asarray(part) for part in jax.tree.leaves((outputs, gradients))]


def compare(kind):
    """Values and gradients of both forms of a layer are the same; and one is not the other."""
    layer = (KINDS | VECTORS)[kind]()
    inputs = tuple(part.astype("float32") for part in posed(layer, capsules("benign")))
    layer.build(tuple(part.shape for part in inputs))
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(0.5 * rng.normal(size=weight.shape))
    forms = [differentiated(layer, inputs, allowed) for allowed in (True, False)]
    for name, found, expected in zip(names_of(layer), *forms, strict=True):
        assert_close(found, expected, 1e-4, f"{kind}: {name}")
    assert any((found != expected).any() for found, expected in zip(*forms, strict=True)), kind


class Asking(keras.layers.Layer):
    """Keeps what a layer is told that asks whether it may use compiled routing."""

    def __init__(self):
        super().__init__()
        self.told = set()

    def call(self, inputs):
        self.told.add(cpu.enabled())
        return inputs


def answers():
    """What a layer of a model that trains and predicts, and of one that is traced otherwise, is told."""
    asking = Asking()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), asking])
    rows = np.zeros((4, 3), "float32")
    model.compile("sgd", "mse")
    # The first step of any kind asks for shapes before.
    model.test_on_batch(rows, np.zeros((4, 2)))
    found = {}
    for name, step in {
        "train": lambda: model.train_on_batch(rows, np.zeros((4, 2))),
        "predict": lambda: model.predict_on_batch(rows),
        "call": lambda: model(rows),
        "another graph": lambda: jax.jit(model)(rows),
    }.items():
        asking.told.clear()
        step()
        found[name] = {*asking.told}
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=jax.devices()))
    return {**found, "distributed": {cpu.enabled()}}


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        compare(kind)
    print(answers())
