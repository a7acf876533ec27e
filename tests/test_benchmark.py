"""The baseline of `capszoo bench` computes what our layers compute; the measurements are what they say."""

import numpy as np
import pytest
import tensorflow as tf
from oracles import textbook
from support import fill

from capszoo.models import DynamicCapsNet, MatrixCapsNet
from capszoo.routing.fused import host_calls

MATRIX = MatrixCapsNet(channels=8, primary_types=2, conv1_types=3, conv2_types=4)
DYNAMIC = DynamicCapsNet(channels=8, primary_types=2)
NETS = {
    "em": (MATRIX, (22, 24, 2)),
    "em, one iteration": (
        MatrixCapsNet(channels=8, primary_types=2, conv1_types=3, conv2_types=4, num_iterations=1),
        (20, 20, 1),
    ),
    "dynamic": (DYNAMIC, (20, 20, 1)),
    "leaky": (DynamicCapsNet(channels=8, primary_types=2, routing="leaky", class_bias=False), (20, 20, 1)),
}


def outputs_and_gradients(model, inputs, weights):
    """All outputs of a model, and the gradients of a fixed mixture of them."""
    rng = np.random.default_rng(1)

    @tf.function(autograph=False)
    def run():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = sum(
                tf.reduce_sum(
                    outputs[name] * rng.normal(size=(len(inputs), *outputs[name].shape[1:])).astype("float32")
                )
                for name in sorted(outputs)
            )
        return outputs, tape.gradient(loss, weights)

    outputs, gradients = run()
    return {**outputs, **dict(zip([w.path for w in weights], gradients, strict=True))}


@pytest.mark.parametrize(
    ("net", "form"),
    [
        ("em", "fused"),
        ("em", "graph"),
        ("em, one iteration", "graph"),
        ("dynamic", "graph"),
        ("leaky", "graph"),
    ],
)
def test_the_textbook_twin_has_our_outputs_and_gradients(net, form):
    architecture, image_shape = NETS[net]
    model = fill(architecture.build(image_shape, 5), scale=0.1)
    inputs = np.random.default_rng(0).random((3, *image_shape)).astype("float32")
    with host_calls(form == "fused"):
        ours = outputs_and_gradients(model, inputs, model.trainable_weights)
    theirs = outputs_and_gradients(textbook.twin(model), inputs, model.trainable_weights)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        value, other = np.asarray(value), np.asarray(theirs[name])
        scale = np.abs(other).max()
        assert scale > 0, name

        assert np.abs(value - other).max() <= 2e-5 * scale, name
