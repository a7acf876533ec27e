"""Machine code is kept where that is possible, forgotten where it is stale, and made anew where nothing can be kept."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core import caching

from capszoo.routing.cpu import compiling
from capszoo.routing.cpu.entrance import Kernel


def set_to_one(problem, array, part):
    array[part] = 1.0


def works(kernel):
    array = np.zeros(1, "float32")
    kernel(None, array)
    return array[0] == 1


def test_where_nothing_can_be_written_a_kernel_compiles_in_memory(monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    double = Kernel(set_to_one, shapes=lambda problem: [(1,)], parts=lambda problem: 1)
    assert works(double)
    assert double.dispatcher.stats.cache_path is None
    compiling.forget_stale(double)


def test_without_a_home_nothing_is_written(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [caching.UserWideCacheLocator])
    assert works(Kernel(set_to_one, shapes=lambda problem: [(1,)], parts=lambda problem: 1))
    assert not list(tmp_path.iterdir())


def test_what_was_compiled_before_a_change_of_any_file_is_forgotten(tmp_path):
    class Dispatcher:
        stats = SimpleNamespace(cache_path=tmp_path)
        py_func = SimpleNamespace(__module__="capszoo.routing.cpu.em_forward", __name__="forward")

    names = [
        "em_forward.forward-240.py311.nbi",
        "em_forward.forward-240.py311.1.nbc",
        "votes.py",
        "other.nbi",
    ]
    for name in names:
        (tmp_path / name).touch()
    compiling.forget_stale(SimpleNamespace(dispatcher=Dispatcher))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    for name in names:
        os.utime(tmp_path / name, (0, 0))
    compiling.forget_stale(SimpleNamespace(dispatcher=Dispatcher))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.nbi", "votes.py"]


def test_what_another_process_has_cleared_meanwhile_is_no_error(tmp_path, monkeypatch):
    function = SimpleNamespace(__module__="some.module", __name__="f")
    dispatcher = SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path)), py_func=function)
    glob = Path.glob

    def found(folder, pattern):
        return iter([tmp_path / "module.f-1.nbi"]) if folder == tmp_path else glob(folder, pattern)

    monkeypatch.setattr(Path, "glob", found)
    compiling.forget_stale(SimpleNamespace(dispatcher=dispatcher))


LOADED_BY_NOBODY = """
import os, pwd
from numba.core import caching

def nobody(number):
    raise KeyError(number)

pwd.getpwuid = nobody
caching.CacheImpl._locator_classes = []

import numpy as np
import capszoo
from capszoo.data.sources import tfds_folders
from capszoo.routing.cpu import em_forward

dispatcher = em_forward.forward_chunk.dispatcher
model = capszoo.load("matrix_em_mnist")
scores = model.predict(np.zeros((1, *model.input_shape[1:]), "float32"), verbose=0)["scores"]
assert np.isfinite(scores).all()
assert dispatcher.signatures and dispatcher.stats.cache_path is None
assert str(tfds_folders()[0]) == os.environ["CAPSZOO_DATA_DIR"]
"""


@pytest.mark.slow
def test_a_user_without_a_home_and_a_package_that_cannot_be_written_load_and_predict(tmp_path):
    (tmp_path / "data").mkdir()
    environment = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "NUMBA_CACHE_DIR")
    }
    environment["CAPSZOO_DATA_DIR"] = str(tmp_path / "data")
    environment.pop("TFDS_DATA_DIR", None)
    command = [sys.executable, "-c", LOADED_BY_NOBODY]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_kernels_call_is_compiled_once_for_all_integers():
    @compiling.inner
    def plus(x, number):
        return x + number

    @numba.njit
    def twice(x):
        return plus(plus(x, 1), 2)

    assert twice(1.0) == 4
    assert len(plus.overloads) == 1
