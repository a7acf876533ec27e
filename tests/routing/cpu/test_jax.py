"""Under JAX compiled routing has the values and gradients of the graph, and is used where it is under TensorFlow."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
OTHERS = ["similarity, conv", "recurrent, classes", "variational, conv", "vectors, conv"]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")


@pytest.mark.parametrize("kinds", [["conv, stride 2"], pytest.param(OTHERS, marks=pytest.mark.slow)])
def test_a_kernel_is_an_operation_of_jax(kinds):
    done = subprocess.run(
        [sys.executable, "-m", "routing.cpu.jax_forms", *kinds],
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    used, graph = {True}, {False}
    assert done.stdout.splitlines()[-1] == str(
        {"train": used, "predict": used, "call": used, "another graph": graph, "distributed": graph}
    )
