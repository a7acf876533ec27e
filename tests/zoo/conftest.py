"""A tiny zoo: three recipes, one of them trained and published."""

import shutil

import pytest
from tiny import RECIPE, write_mnist

from capszoo.training.run import train
from capszoo.zoo import locating, recipes
from capszoo.zoo.publishing import publish


def _live_in(root, weights, home, patch):
    """Lets the library find recipes, weights and data of the tiny zoo, and nothing else."""
    patch.setenv("CAPSZOO_DATA_DIR", str(root / "data"))
    patch.setenv("TFDS_DATA_DIR", str(root / "none"))
    patch.setenv("HOME", str(home))
    patch.setenv("CAPSZOO_HOME", str(home))
    patch.delenv("CAPSZOO_RELEASE_URL", raising=False)
    patch.setattr(recipes, "folder", lambda: root / "configs")
    patch.setattr(locating, "weights_folder", lambda: weights)


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """The folder of the zoo: data, configs, run, weights."""
    root = tmp_path_factory.mktemp("zoo")
    write_mnist(root / "data")
    (root / "configs").mkdir()
    for name in ("tiny_mnist", "tiny_mnist10", "tiny_mnist9"):
        (root / "configs" / f"{name}.yaml").write_text(RECIPE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        _live_in(root, root / "weights", root / "home", patch)
        recipe = recipes.read_recipe("tiny_mnist")
        train(recipe, root / "run")
        publish(recipe, root / "run", root / "weights")
    return root


@pytest.fixture
def zoo(published, tmp_path, monkeypatch):
    """The zoo with a copy of the weights that a test may damage; gives the folder of the published preset."""
    shutil.copytree(published / "weights", tmp_path / "weights")
    _live_in(published, tmp_path / "weights", tmp_path / "home", monkeypatch)
    return tmp_path / "weights" / "tiny_mnist"
