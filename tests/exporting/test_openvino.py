"""OpenVINO, in an environment of its own, says of the ONNX files that it reads what the Keras models say."""

import json
import subprocess
import sys

import numpy as np
import pytest
from environments import uv
from exporting.requests import CLIENTS

from capszoo.exporting.servers import PUBLISHED, newest
from capszoo.exporting.verification import EXAMPLES, TOLERANCE

pytestmark = pytest.mark.slow

# What the client says, with its own settings or with others.
SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
import openvino
import predict_openvino

bundle, target, settings = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if settings != "its own":
    predict_openvino.PRECISION = json.loads(settings)
labels, outputs = predict_openvino.predict(bundle, sorted((bundle / "assets.extra/examples").glob("*.png")))
np.savez(target, **outputs)
print(json.dumps(openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with OpenVINO and without capszoo."""
    python = tmp_path_factory.mktemp("openvino") / "environment" / "bin" / "python"
    uv("venv", "-q", "--python", sys.executable, python.parents[1])
    uv("pip", "install", "-q", "--python", python, "openvino", "numpy", "pillow")
    return python


def ask(python, folder, name, settings="its own"):
    """How far the client's answers are from the Keras model's, by output, and what this processor computes with."""
    bundle, target = newest(PUBLISHED / name), folder / "outputs.npz"
    command = [python, "-c", SCRIPT, bundle, target, settings]
    done = subprocess.run(command, cwd=CLIENTS, capture_output=True, text=True)
    if done.returncode:
        return done.stderr, ()
    said, expected = np.load(target), np.load(bundle / EXAMPLES)
    deviations = {output: np.abs(said[output] - expected[output]).max() for output in said}
    return deviations, json.loads(done.stdout)


def test_the_client_says_what_the_model_says(python, tmp_path):
    deviations, _ = ask(python, tmp_path, "efficient_mnist")
    assert set(deviations) == {"scores", "poses"}
    assert max(deviations.values()) < TOLERANCE


def test_without_the_hint_processors_with_bfloat16_say_something_else(python, tmp_path):
    deviations, capabilities = ask(python, tmp_path, "efficient_mnist", "{}")
    if "BF16" not in capabilities:
        pytest.skip("this processor has no bfloat16")
    assert max(deviations.values()) > 10 * TOLERANCE


@pytest.mark.parametrize("name", ["kernel_mnist", "lstm_mnist", "matrix_em_mnist", "matrix_em_smallnorb"])
def test_routing_in_a_loop_is_refused_and_not_computed_wrongly(python, tmp_path, name):
    error, _ = ask(python, tmp_path, name)
    assert (
        f"ValueError: {newest(PUBLISHED / name)}/onnx/{name}.onnx: -- Conversion is failed for: Loop" in error
    )
