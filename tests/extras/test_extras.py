"""A library outside the core is imported where a missing one is an error that names the extra that brings it."""

import ast
import importlib
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import keras
import pytest
from packaging.requirements import Requirement

import capszoo
from capszoo.extras import MissingExtra, backend, extra

ROOT = Path(__file__).parents[2]
PACKAGE = Path(capszoo.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {
    module: {name.lower().replace("_", "-") for name in names}
    for module, names in importlib.metadata.packages_distributions().items()
}
# Imported only on their own backend, where Keras has imported it before, by its kernels, or by the bench.
OF_BACKENDS = {"tensorflow", "jax", "numba", "llvmlite"}


def distributions_of(extras):
    """The names of the distributions that extras bring, extras of extras included."""
    requirements = [Requirement(line) for name in extras for line in PROJECT["optional-dependencies"][name]]
    nested = {
        name for requirement in requirements for name in requirement.extras if requirement.name == "capszoo"
    }
    return {requirement.name for requirement in requirements} | (
        distributions_of(nested) if nested else set()
    )


CORE = {Requirement(line).name for line in PROJECT["dependencies"]}


def imports(path):
    """(module, extras around it) of each import of a library in a file of the package."""

    def walk(node, extras):
        if isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "extra":
                    extras = (*extras, *call.args[0].value.split(","))
        if isinstance(node, ast.Import):
            yield from ((name.name.partition(".")[0], extras) for name in node.names)
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0], extras
        for child in ast.iter_child_nodes(node):
            yield from walk(child, extras)

    return [
        (module, extras)
        for module, extras in walk(ast.parse(path.read_text(encoding="utf-8")), ())
        if module not in sys.stdlib_module_names | {"capszoo"} | OF_BACKENDS
    ]


# Files that only a file which names the extra imports, and scripts that are run with everything installed.
BEHIND = {
    "exporting": "export",
    "data/synthnorb/builder.py": "synthnorb",
    "data/synthnorb/mesh.py": "synthnorb",
    "data/synthnorb/renderer.py": "synthnorb",
}


def test_what_is_imported_is_in_the_core_or_names_its_extra():
    stray = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE).as_posix()
        behind = tuple(name for place, name in BEHIND.items() if relative.startswith(place))
        for module, extras in imports(path):
            brought = CORE | distributions_of((*extras, *behind))
            if not DISTRIBUTIONS.get(module, {module}) & brought:
                stray.append(f"{module} in {relative}")
    assert not stray


def pinned(file):
    """(name, version) of each pin in a file of requirements; lines that go on with hashes are left out."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if "==" in line and not line.startswith("#"):
            name, version = line.removesuffix("\\").strip().split("==")
            yield name.lower().replace("_", "-"), version


def test_every_pin_has_the_hashes_of_its_files():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8").replace("\\\n", "")
    for line in text.splitlines():
        assert re.fullmatch(r"[\w.-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+\s*", line), line


def test_what_is_pinned_is_within_the_ranges():
    # The site's tools have a file of their own; what both pin is the project's.
    files = [ROOT / "docs" / "requirements.txt", ROOT / "requirements.txt"]
    pins = {name: version for file in files for name, version in pinned(file)}
    lines = PROJECT["dependencies"] + [
        line for lines in PROJECT["optional-dependencies"].values() for line in lines
    ]
    for requirement in map(Requirement, lines):
        # Of the two distributions of TensorFlow Probability the pinned one serves both backends.
        if requirement.name not in ("capszoo", "tensorflow-probability"):
            version = pins[requirement.name.replace("_", "-")]
            assert requirement.specifier.contains(version, prereleases=True), requirement


def test_a_missing_library_names_its_extra():
    with pytest.raises(MissingExtra) as error, extra("tune"):
        import no_such_library  # noqa: F401
    assert str(error.value) == "no_such_library is not installed. It comes with: pip install 'capszoo[tune]'"


def test_a_missing_backend_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'capszoo\[tensorflow,train\]'"), extra("train"):
        import tensorflow
    with (
        pytest.raises(
            MissingExtra, match=r"pip install 'capszoo\[tensorflow\]'; KERAS_BACKEND=tensorflow or jax"
        ),
        backend(),
    ):
        import tensorflow  # noqa: F401


def test_another_error_of_an_import_stays_what_it_is(monkeypatch):
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_library'"), backend():
        import no_such_library  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name"), extra("tune"):
        from json import no_such_name  # noqa: F401


def run_without(*modules, code="from capszoo.cli import main; main()", arguments=()):
    """Runs Python where some modules are not installed; their packages' metadata do not matter."""
    hide = "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(',')));"
    command = [sys.executable, "-c", hide + code, ",".join(modules), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_a_backend_the_zoo_is_listed_and_loading_names_the_extra():
    assert "dynamic_mnist" in run_without("tensorflow", "jax", arguments=["list"]).stdout
    done = run_without(
        "tensorflow", "jax", arguments=["predict", "picture.png", "--model", "matrix_em_mnist"]
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "error: tensorflow is not installed. It comes with: pip install 'capszoo[tensorflow]';"
    )


def test_without_keras_tuner_the_search_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_tuner", None)
    monkeypatch.delitem(sys.modules, "capszoo.search.tuner", raising=False)
    with pytest.raises(MissingExtra, match=r"keras_tuner is not installed.*capszoo\[tune\]"):
        importlib.import_module("capszoo.search.tuner")


@pytest.mark.parametrize(("name", "extra"), [("tensorflow", "generative"), ("jax", "generative-jax")])
def test_without_tensorflow_probability_generative_capsules_name_the_extra(monkeypatch, name, extra):
    from capszoo.layers.generative import GaussianCode

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(keras.backend, "backend", lambda: name)
    with pytest.raises(
        MissingExtra, match=rf"needs TensorFlow Probability: pip install 'capszoo\[{extra}\]'"
    ):
        GaussianCode()
