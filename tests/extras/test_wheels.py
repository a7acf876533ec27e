"""Two wheels: code, recipes, samples and small presets in the first, large weights in the second."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from environments import wheel

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
    too_large = "move weights with git mv from capszoo/weights/NAME to weights/capszoo_weights/NAME"
    assert size(SMALL) < LIMITS["capszoo"], too_large
    assert size(LARGE) < LIMITS["capszoo_weights"]


def test_everything_that_is_committed_stays_below_150_megabytes():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no checkout of git")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert len(paths) > 500
    assert sum(path.stat().st_size for path in paths if path.is_file()) < 150e6


def test_weights_lie_in_one_of_the_packages_only():
    small, large = (
        {path.parent.name for path in folder.glob("*/weights.safetensors")}
        for folder in (SMALL / "weights", LARGE)
    )
    assert small & large == set()
    assert sorted(small | large) == sorted(capszoo.list_models(pretrained=True))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The wheel of the library."""
    return wheel(ROOT, tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The wheel of the large weights."""
    return wheel(LARGE.parent, tmp_path_factory.mktemp("large"))


def test_the_wheel_brings_code_recipes_samples_cards_and_small_weights(small):
    assert small.stat().st_size < LIMITS["capszoo"]
    names = set(zipfile.ZipFile(small).namelist())
    assert {"capszoo/py.typed", "capszoo/__main__.py"} <= names
    assert "capszoo/docs/results.json" in names
    assert {f"capszoo/zoo_configs/{path.name}" for path in (ROOT / "zoo_configs").glob("*.yaml")} <= names
    published = [
        path for path in (SMALL / "weights").rglob("*.*") if path.suffix in (".json", ".safetensors")
    ]
    assert {path.relative_to(ROOT).as_posix() for path in published} <= names
    assert any(name.startswith("capszoo/data/samples/digits/") for name in names)
    assert not any("tests/" in name or "__pycache__" in name for name in names)


@pytest.mark.slow
def test_the_second_wheel_brings_the_large_weights_only(large):
    assert large.stat().st_size < LIMITS["capszoo_weights"]
    names = {name for name in zipfile.ZipFile(large).namelist() if ".dist-info/" not in name}
    weights = {path.relative_to(LARGE.parent).as_posix() for path in LARGE.glob("*/weights.safetensors")}
    assert names == weights | {"capszoo_weights/__init__.py"}


@pytest.mark.slow
def test_installed_wheels_find_every_presets_weights(small, large, tmp_path):
    def found(*wheels):
        site = tmp_path / str(len(wheels))
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps", "--target", site]
        subprocess.run([*install, *wheels], check=True)
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

    site, done = found(small, large)
    facts = json.loads(done.stdout)
    assert Path(facts["at"]).is_relative_to(site)
    assert facts["recipes"] == len(list((ROOT / "zoo_configs").glob("*.yaml")))
    assert facts["files"].keys() == set(capszoo.list_models(pretrained=True))
    assert all(Path(path).is_relative_to(site) for path in facts["files"].values())

    _, done = found(small)
    assert "WeightsNotFound" in done.stderr
    assert "pip install capszoo-weights" in done.stderr
