"""What a user imports: named, annotated, with examples that do what they show."""

import doctest
import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest

import capszoo

PACKAGE = Path(capszoo.__file__).parent
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


def test_the_version_is_that_of_the_distribution():
    assert capszoo.__version__ == importlib.metadata.version("capszoo")


@pytest.mark.parametrize("name", [name for name in capszoo.__all__ if not name.startswith("_")])
def test_public_functions_say_the_types_of_what_they_take_and_return(name):
    function = getattr(capszoo, name)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name
    assert (PACKAGE / "py.typed").is_file()


def test_what_is_public_is_listed_by_dir_too():
    assert set(capszoo.__all__) <= set(dir(capszoo))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_examples_of_docstrings_do_what_they_show(path):
    name = ".".join(("capszoo", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    module = importlib.import_module(name)
    picture = np.zeros((1, 28, 28, 1), "uint8")
    done = doctest.testmod(module, extraglobs={"picture": picture}, optionflags=doctest.ELLIPSIS)
    assert done.attempted
    assert not done.failed
