"""What every test may rely on: TensorFlow as the backend, silent logs, fixed seeds, `tests/` on the import path."""

import gc
import os
import random
import sys
from pathlib import Path

# Before anything imports Keras or TensorFlow.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Servers of tests are on this machine, whatever proxy leads out of it.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "localhost,127.0.0.1"
# Tests compile much with XLA and compute little.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pytest

# Graphs are made of many small objects that live long; looking through all of them again and again takes a tenth of
# the time.
gc.set_threshold(200_000, 20, 100)


@pytest.fixture(autouse=True)
def seeds():
    """The same random numbers in every test, whichever tests run before it."""
    random.seed(0)
    np.random.seed(0)
    # Tests that need no Keras need not wait for it.
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def rewriting(request):
    """Graphs are run as they are written, unless a test is marked `rewritten` or slow.

    TensorFlow's rewriting takes a fifth of the time of tests that run each graph a few times. It may change what a
    graph says of NaN and of no images at all; what depends on that, and what compares graphs with eager layers, has it.
    """
    if "tensorflow" in sys.modules:
        wanted = any(request.node.get_closest_marker(name) for name in ("rewritten", "slow"))
        optimizer = sys.modules["tensorflow"].config.optimizer
        # To set it forgets all operations that have been prepared to be run.
        if optimizer.get_experimental_options().get("disable_meta_optimizer", False) == wanted:
            optimizer.set_experimental_options({"disable_meta_optimizer": not wanted})


@pytest.fixture
def accelerator(monkeypatch):
    """TensorFlow seems to have a GPU; what has been remembered of its devices is asked again, then and afterwards."""
    import tensorflow as tf

    from capszoo.routing import cpu

    real = tf.config.get_visible_devices
    monkeypatch.setattr(
        tf.config, "get_visible_devices", lambda kind: ["one"] if kind == "GPU" else real(kind)
    )
    cpu._cpu.cache_clear()
    yield
    cpu._cpu.cache_clear()


@pytest.fixture
def eagerly(request):
    """What would be traced runs as it is, unless a test is marked `traced` or `rewritten`.

    Tracing costs more than computing once.
    """
    import tensorflow as tf

    graphs = any(request.node.get_closest_marker(name) for name in ("traced", "rewritten"))
    tf.config.run_functions_eagerly(not graphs)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session", autouse=True)
def revision():
    """Code counts as committed, as published cards need it: tests are run before a commit too. The real function."""
    from capszoo.protocols import provenance

    real = provenance.revision
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "revision", lambda: "0.1.0 0123456789")
        yield real


@pytest.fixture(scope="session")
def tiny_model():
    """A small untrained capsule network for 28x28 digits. Shared: a test that trains builds its own."""
    import keras

    from capszoo.models import DynamicCapsNet

    keras.utils.set_random_seed(0)
    return DynamicCapsNet(channels=16, primary_types=4).build((28, 28, 1), 10)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The tiny MNIST, 300 training and 100 test images, is the only data set there is; the folder it is in."""
    from tiny import write_mnist

    root = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPSZOO_DATA_DIR", str(write_mnist(root / "data")))
        patch.setenv("TFDS_DATA_DIR", str(root / "none"))
        patch.setenv("HOME", str(root / "home"))
        yield root


@pytest.fixture
def run(monkeypatch, capsys):
    """The command line: `run(*arguments)` -> (exit status, standard output, standard error)."""
    from capszoo import cli

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["capszoo", *map(str, arguments)])
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = end.code
        output = capsys.readouterr()
        return status or 0, output.out, output.err

    return call
