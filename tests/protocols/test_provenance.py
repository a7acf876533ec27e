"""A number says at which commit it was measured, and whether the code was that of the commit."""

import importlib.metadata
import os
import re
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from capszoo import config
from capszoo.data import Mnist
from capszoo.protocols import provenance


@pytest.mark.parametrize(
    ("changed", "differs"),
    [("capszoo/code.py", True), ("capszoo/weights/card.json", False), ("export/a", False)],
)
def test_a_plus_says_that_code_was_changed_after_the_commit(
    revision, changed, differs, tmp_path, monkeypatch
):
    """Cards and bundles are what measuring writes: the second preset of a day is measured by the same code."""
    # In a hook of git these name the real repository.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "capszoo" / "protocols" / "provenance.py"))
    monkeypatch.setattr(config, "_SECTIONS", {})
    for name in ("capszoo/code.py", "capszoo/weights/card.json", "export/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True)
    revision.cache_clear()
    assert not revision().endswith("+")
    (tmp_path / changed).write_text("after")
    assert not revision().endswith("+"), "this process runs what was there before"
    revision.cache_clear()
    assert revision().endswith("+") == differs
    revision.cache_clear()


MINE = """
import dataclasses
from capszoo.config import section

@section("data", "elsewhere")
@dataclasses.dataclass(frozen=True)
class Mine:
    size: int = {}
"""


def test_code_from_elsewhere_that_has_registered_something_is_named_with_its_hash(
    revision, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(config, "_SECTIONS", {"data": {"mnist": Mnist}})
    revision.cache_clear()
    alone = revision()
    package = tmp_path / "capszoo_test_elsewhere"
    package.mkdir()
    (package / "__init__.py").write_text("from capszoo_test_elsewhere import data")
    seen = set()
    for size in (10, 20):
        (package / "data.py").write_text(MINE.format(size), encoding="utf-8")
        for name in [name for name in sys.modules if name.startswith("capszoo_test_elsewhere")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        importlib.import_module("capszoo_test_elsewhere")
        revision.cache_clear()
        own, _, others = revision().partition(", ")
        assert own == alone
        assert re.fullmatch("capszoo_test_elsewhere [0-9a-f]{10}", others)
        assert provenance.is_committed(revision()) == provenance.is_committed(alone)
        seen.add(others)
    assert len(seen) == 2
    revision.cache_clear()


def test_libraries_are_named_where_their_distribution_has_another_name(monkeypatch):
    """TensorFlow comes as tensorflow-cpu too."""

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert provenance.backend().startswith(f"tensorflow {tf.__version__}, keras {keras.__version__}, numpy ")
    assert re.match(r"\d+\.\d+\.\d+", provenance.stamp()["revision"])
