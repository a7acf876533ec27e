"""What is done around the first import of a library."""

import contextlib
import importlib
import importlib.util
import sys

from capszoo.extras.importing import around_import


def test_whoever_asks_whether_a_library_is_there_does_not_import_it(tmp_path, monkeypatch):
    (tmp_path / "somebodys_library.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []

    @contextlib.contextmanager
    def context():
        seen.append("before")
        yield
        seen.append(sys.modules["somebodys_library"].value)

    finders = len(sys.meta_path)
    around_import("somebodys_library", context)
    for _ in range(2):
        assert importlib.util.find_spec("somebodys_library")
    assert seen == []
    importlib.import_module("somebodys_library")
    assert seen == ["before", 1]
    assert len(sys.meta_path) == finders
