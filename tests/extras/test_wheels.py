"""Two wheels: code, recipes, samples and small presets in the first, large weights in the second."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import capszoo

ROOT = Path(__file__).parents[2]
SMALL, LARGE = ROOT / "capszoo", ROOT / "weights" / "capszoo_weights"
# What the wheels may weigh.
LIMITS = {"capszoo": 30e6, "capszoo_weights": 100e6}

# Where the published files are found, without Keras.
SCRIPT = """
import json, sys
import capszoo
from capszoo.zoo import recipes
from capszoo.zoo.locating import find_file

presets = [capszoo.get_preset(name) for name in capszoo.list_models(pretrained=True)]
files = {preset.name: str(find_file(preset, "weights.safetensors")) for preset in presets}
checks = {str(find_file(preset, "check.safetensors")) for preset in presets}
assert len(checks) == len(presets) and "keras" not in sys.modules
print(json.dumps({"files": files, "recipes": len(list(recipes.folder().glob("*.yaml"))), "at": capszoo.__file__}))
"""


def size(folder):
    """Bytes of the files of a package; weights hardly compress."""
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def test_the_packages_are_as_small_as_their_wheels_must_be():
    """Move what is too large with `git mv capszoo/weights/NAME/weights.safetensors weights/capszoo_weights/NAME/`."""
    assert size(SMALL) < LIMITS["capszoo"]
    assert size(LARGE) < LIMITS["capszoo_weights"]


def test_weights_lie_in_one_of_the_packages_only():
    small, large = (
        {path.parent.name for path in folder.glob("*/weights.safetensors")}
        for folder in (SMALL / "weights", LARGE)
    )
    assert small & large == set()
    assert sorted(small | large) == sorted(capszoo.list_models(pretrained=True))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Both wheels, built as `make wheels` does, by the name of the distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in (ROOT, LARGE.parent):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(command, cwd=project, check=True, stdout=subprocess.PIPE)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.mark.slow
def test_wheels_are_small_and_hold_what_is_needed(wheels):
    assert wheels.keys() == LIMITS.keys()
    for name, path in wheels.items():
        assert path.stat().st_size < LIMITS[name]
    names = set(zipfile.ZipFile(wheels["capszoo"]).namelist())
    assert {"capszoo/py.typed", "capszoo/zoo_configs/dynamic_mnist.yaml"} <= names
    assert {f"capszoo/weights/{name}/card.json" for name in capszoo.list_models(pretrained=True)} <= names
    assert any(name.startswith("capszoo/data/samples/digits/") for name in names)
    assert not any("tests/" in name or "__pycache__" in name for name in names)


@pytest.mark.slow
def test_installed_wheels_find_every_presets_weights(wheels, tmp_path):
    def found(*names):
        site = tmp_path / "-".join(names)
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps", "--target", site]
        subprocess.run([*install, *(wheels[name] for name in names)], check=True)
        # Not the working directory, which is a checkout.
        environment = {**os.environ, "PYTHONPATH": str(site), "CAPSZOO_HOME": str(tmp_path / "home")}
        return site, subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    site, done = found("capszoo", "capszoo_weights")
    facts = json.loads(done.stdout)
    assert Path(facts["at"]).is_relative_to(site)
    assert facts["recipes"] == len(list((ROOT / "zoo_configs").glob("*.yaml")))
    assert facts["files"].keys() == set(capszoo.list_models(pretrained=True))
    assert all(Path(path).is_relative_to(site) for path in facts["files"].values())

    _, done = found("capszoo")
    assert "WeightsNotFound" in done.stderr
    assert "pip install capszoo-weights" in done.stderr
