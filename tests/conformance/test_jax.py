"""TensorFlow and JAX compute the same."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conformance.goldens import ARCHITECTURES, LAYERS, ROUTINGS
from support import arrays, fill

TESTS = Path(__file__).parents[1]
CLOSE = {"rtol": 1e-4, "atol": 2e-5}

# The twin compiles everything once more; that a net trains under JAX is in the fast tests, training/test_jax_run.py.
pytestmark = pytest.mark.slow


def ids(golden):
    return golden.name


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """`twin(kind, golden)`: what the golden computes under JAX, by name."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    path = tmp_path_factory.mktemp("jax") / "twin.npz"
    search = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "conformance.jax_twin", str(path)],
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            # Compiling takes longer than computing.
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    values = dict(np.load(path))
    assert values["backend"] == "jax"
    assert not values["tensorflow_was_imported"]

    def of(kind, golden):
        prefix = f"{kind}/{golden.name}/"
        found = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        assert "error" not in found, str(found["error"])
        return found

    return of


@pytest.mark.parametrize("golden", ROUTINGS, ids=ids)
def test_a_routing_computes_the_same_under_jax(golden, twin):
    votes, activations = golden.inputs()
    layer = golden.create()
    layer.build(votes.shape)
    fill(layer)
    votes = tf.constant(votes)
    with tf.GradientTape() as tape:
        tape.watch(votes)
        poses, parents, history = layer(
            votes, activations, num_iterations=golden.iterations[-1], return_history=True
        )
        total = tf.reduce_sum(poses)
    expected = {
        "poses": poses,
        "activations": parents,
        "coefficients": history,
        "counted": poses,
        "gradient": tape.gradient(total, votes),
    }
    computed = twin("routing", golden)
    for what, tensor in expected.items():
        np.testing.assert_allclose(computed[what], tensor, **CLOSE, err_msg=what)


@pytest.mark.parametrize("golden", LAYERS, ids=ids)
def test_a_layer_computes_the_same_under_jax(golden, twin):
    inputs = golden.arrays()
    layer = golden.create()
    layer(*inputs)
    fill(layer)
    computed = twin("layer", golden)
    for i, array in enumerate(arrays(layer(*inputs))):
        np.testing.assert_allclose(computed[str(i)], array, **CLOSE)


@pytest.mark.parametrize("golden", ARCHITECTURES, ids=ids)
def test_a_model_computes_the_same_under_jax(golden, twin):
    outputs = fill(golden.build(), scale=0.1)(golden.batch()["images"])
    computed = twin("model", golden)
    for name, tensor in outputs.items():
        np.testing.assert_allclose(computed[name], tensor, **CLOSE, err_msg=name)
