"""Runs a script in a process of its own, whose backend is JAX."""

import os
import subprocess
import sys

from tiny import write_mnist


def run_under_jax(script, recipe, folder):
    """Runs `script` in `folder`, beside `recipe` as tiny.yaml and tiny MNIST, on the CPU."""
    (folder / "tiny.yaml").write_text(recipe, encoding="utf-8")
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        # It computes more than it compiles.
        "XLA_FLAGS": "",
        "CAPSZOO_DATA_DIR": str(write_mnist(folder / "data")),
        "TFDS_DATA_DIR": str(folder / "none"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
