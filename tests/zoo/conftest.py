"""A tiny zoo: three recipes, one of them trained and published."""

import shutil

import pytest
from tiny import RECIPE, write_mnist

from capszoo import presets, recipes
from capszoo.publishing import publish
from capszoo.training import train


@pytest.fixture(scope="package")
def published(tmp_path_factory):
    """A zoo of three recipes, one of them trained and published; gives its folders."""
    root = tmp_path_factory.mktemp("zoo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPSZOO_DATA_DIR", str(write_mnist(root / "data")))
        patch.setenv("TFDS_DATA_DIR", str(root / "none"))
        patch.setenv("CAPSZOO_HOME", str(root / "home"))
        patch.delenv("CAPSZOO_RELEASE_URL", raising=False)
        (root / "configs").mkdir()
        for name in ("tiny_mnist", "tiny_mnist10", "tiny_mnist9"):
            (root / "configs" / f"{name}.yaml").write_text(RECIPE, encoding="utf-8")
        patch.setattr(recipes, "folder", lambda: root / "configs")
        patch.setattr(presets, "weights_folder", lambda: root / "weights")
        recipe = recipes.read_recipe("tiny_mnist")
        train(recipe, root / "run")
        publish(recipe, root / "run", root / "weights")
        yield root


@pytest.fixture
def zoo(published, tmp_path, monkeypatch):
    """The published zoo with a copy of the weights that a test may damage; gives the folder of the preset."""
    shutil.copytree(published / "weights", tmp_path / "weights")
    monkeypatch.setattr(presets, "weights_folder", lambda: tmp_path / "weights")
    monkeypatch.setenv("CAPSZOO_HOME", str(tmp_path / "home"))
    return tmp_path / "weights" / "tiny_mnist"
