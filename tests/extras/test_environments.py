"""Both ends of the ranges of versions, and JAX without TensorFlow: every architecture loads, predicts, learns there."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from environments import interpreter, uv
from tiny import RECIPE, write_mnist

import capszoo

ROOT = Path(__file__).parents[2]

# Loading a preset compares its outputs with the published ones.
SCRIPT = """
import importlib.metadata, json, sys, warnings
import numpy as np
import capszoo
from capszoo.losses import MarginLoss

warnings.simplefilter("ignore")
loaded = [name for name in sys.argv[1].split(",") if capszoo.load(name)]
model = capszoo.load("matrix_em_mnist", num_classes=3)
images = np.random.default_rng(0).random((8, *model.input.shape[1:]), dtype="float32")
model.compile("adam", loss={"scores": MarginLoss(), "poses": None})
model.fit(images, {"scores": np.eye(3)[np.arange(8) % 3]}, batch_size=4, verbose=0)
scores = model.predict(images, verbose=0)["scores"]
assert scores.shape == (8, 3) and np.isfinite(scores).all()
versions = {part.name.lower(): part.version for part in importlib.metadata.distributions()}
print(json.dumps({"loaded": loaded, "versions": versions, "file": capszoo.__file__}))
"""


# A preset of each architecture.
PRESETS = list(
    {capszoo.get_preset(name).architecture: name for name in capszoo.list_models(pretrained=True)}.values()
)


def install(folder, python, extras, *options):
    """An environment with the package as a user installs it, in which nothing else can be imported."""
    uv("venv", "-q", "--python", interpreter(python), folder)
    python = folder / "bin" / "python"
    install = ["pip", "install", "-q", "--python", python]
    wanted = [part for extra in extras for part in ("--extra", extra)]
    uv(*install, *options, "-r", "pyproject.toml", *wanted, cwd=ROOT)
    uv(*install, "--no-deps", ".", "./weights", cwd=ROOT)
    return python


def run(python, *arguments, folder, backend):
    """What Python prints, in an empty folder with the tiny MNIST."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "XLA_FLAGS")}
    environment |= {"KERAS_BACKEND": backend, "CAPSZOO_DATA_DIR": str(folder), "JAX_PLATFORMS": "cpu"}
    environment |= {"TFDS_DATA_DIR": str(folder / "none"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [python, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "backend", "extras", "options", "expected"),
    [
        (
            "3.11",
            "tensorflow",
            ["tensorflow", "train", "generative"],
            ["--resolution", "lowest-direct"],
            {"keras": "3.13.", "tensorflow": "2.20.", "tensorflow-probability": "0.25."},
        ),
        (
            "3.13",
            "tensorflow",
            ["tensorflow", "train", "generative"],
            [],
            {"tensorflow": "2.21.", "tensorflow-probability": "0.25."},
        ),
        (
            "3.11",
            "jax",
            ["jax", "train", "generative-jax"],
            ["--resolution", "lowest-direct"],
            {"keras": "3.13."},
        ),
        ("3.13", "jax", ["jax", "train", "generative-jax"], [], {}),
    ],
    ids=["tensorflow-lowest", "tensorflow-highest", "jax-lowest", "jax-highest"],
)
def test_every_architecture_loads_and_learns(python, backend, extras, options, expected, tmp_path):
    python = install(tmp_path / "environment", python, extras, *options)
    work = write_mnist(tmp_path / "work")
    facts = json.loads(
        run(python, "-c", SCRIPT, ",".join(PRESETS), folder=work, backend=backend).splitlines()[-1]
    )
    assert Path(facts["file"]).is_relative_to(tmp_path)
    assert facts["loaded"] == PRESETS
    for name, version in expected.items():
        assert facts["versions"][name].startswith(version)
    assert ("tensorflow" in facts["versions"]) == (backend == "tensorflow")

    (work / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    assert "best validation error" in run(
        python, "-m", "capszoo", "train", "tiny.yaml", folder=work, backend=backend
    )
