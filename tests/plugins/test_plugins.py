"""What a newcomer adds by files outside the package is trained, published, measured, benched and exported."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import capszoo
from capszoo import config, plugins
from capszoo.config import sections
from capszoo.protocols import get_protocol
from capszoo.training.recipe import parse_recipe

DISTRIBUTION = Path(__file__).parent / "distribution"


@pytest.fixture(autouse=True)
def unloaded(monkeypatch):
    """No plugin has been imported yet, and what a test registers is forgotten after it."""
    # The zoo's own protocols are registered when the first one is asked for, and not again.
    get_protocol("test_error")
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(config, "_SECTIONS", {kind: dict(known) for kind, known in config._SECTIONS.items()})
    monkeypatch.setattr(plugins, "_loaded", set())


def module(folder, text, name):
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return name


DATA = """
import dataclasses
from capszoo.config import section
from capszoo.data import Mnist

@section("data", "{0}")
@dataclasses.dataclass(frozen=True)
class Mine(Mnist):
    pass
"""


def test_a_module_named_on_the_command_line_registers_before_a_recipe_is_read(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module(tmp_path, DATA.format("plugin_data"), "capszoo_test_plugin_a")
    assert run("--import", "capszoo_test_plugin_a", "protocols")[0] == 0
    assert os.environ[plugins.VARIABLE] == "capszoo_test_plugin_a"
    assert "plugin_data" in sections("data")
    recipe = parse_recipe("x", {"model": {"name": "dynamic"}, "data": {"name": "plugin_data"}})
    assert recipe.data.section_name == "plugin_data"


def test_a_module_that_cannot_be_imported_is_one_line_that_names_it(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module(tmp_path, "1 / 0", "capszoo_test_plugin_b")
    for name, reason in (
        ("capszoo_test_plugin_b", "ZeroDivisionError: division by zero"),
        ("no_such_plugin", "ModuleNotFoundError: No module named"),
    ):
        monkeypatch.setenv(plugins.VARIABLE, "")
        status, _, err = run("--import", name, "protocols")
        assert status == 1
        assert err.startswith(
            f"error: the plugin {name!r} (--import or CAPSZOO_IMPORT) cannot be imported: {reason}"
        )
        assert err.count("\n") == 1
        if name != "no_such_plugin":
            assert err.endswith(f"{tmp_path / name}.py, line 1\n")


@pytest.mark.parametrize("name", ["no_such_plugin", "./mine.py", "folder/mine"])
def test_a_wrong_module_is_refused_by_commands_that_need_none_of_it_too(name, run):
    status, out, err = run("--import", name, "list")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert name in err
    assert ("is the name of a module, without folder and .py" in err) == ("/" in name)


def test_the_error_for_a_name_that_no_module_has_registered_says_how_to_name_one():
    with pytest.raises(config.ConfigError, match=r"unknown model 'example'.*once --import names its module"):
        parse_recipe("x", {"model": {"name": "example"}, "data": {"name": "mnist"}})


def test_what_is_installed_after_a_recipe_was_read_is_imported_too(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load()
    (tmp_path / "installed_later.py").write_text("", encoding="utf-8")
    about = tmp_path / "installed_later-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: installed-later\nVersion: 1.0\n", encoding="utf-8"
    )
    (about / "entry_points.txt").write_text(f"[{plugins.GROUP}]\nlater = installed_later\n", encoding="utf-8")
    plugins.load()
    assert sys.modules.pop("installed_later")


def test_each_module_is_imported_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    name = module(
        tmp_path, "import sys\nsys.imports_of_c = getattr(sys, 'imports_of_c', 0) + 1\n", "capszoo_test_c"
    )
    plugins.add([name])
    plugins.load()
    plugins.load()
    assert sys.imports_of_c == 1


def test_the_example_of_a_data_set_keeps_the_contract_of_splits(monkeypatch):
    monkeypatch.syspath_prepend(DISTRIBUTION)
    from capszoo_example.data import Squares

    with pytest.raises(ValueError, match=r"a split is one of .*\. Received: 'holdout'"):
        Squares().open("holdout")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """`installed(*arguments)`: the command line in a process of its own, with the example distribution installed."""
    root = tmp_path_factory.mktemp("installed")
    site = root / "site"
    # A copy, so that what is published does not end up in the checkout.
    package = Path(capszoo.__file__).parent
    shutil.copytree(package, site / "capszoo", ignore=shutil.ignore_patterns("weights", "__pycache__"))
    (site / "capszoo" / "weights").mkdir()
    shutil.copytree(DISTRIBUTION, root / "source")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*install, "--target", site, root / "source"], check=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "HOME": str(root),
        "CAPSZOO_HOME": str(root / "home"),
    }

    def call(*arguments):
        command = [sys.executable, "-m", "capszoo", *map(str, arguments)]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call.root, call.weights, call.environment = root, site / "capszoo" / "weights", environment
    return call


@pytest.mark.slow
def test_an_installed_plugin_is_trained_published_measured_benched_and_exported(installed):
    recipe = installed.root / "source" / "example.yaml"
    assert "best validation error" in installed("train", recipe, "--out", "run")
    assert "dark_error: test error 0.00%" in installed("evaluate", "run")
    assert "published example" in installed("publish", recipe, "--run", "run")
    card = json.loads((installed.root / "presets" / "example" / "card.json").read_text())
    assert not list(installed.weights.iterdir())
    assert [metric["protocol"] for metric in card["metrics"]] == ["test_error", "dark_error"]
    assert (card["architecture"], card["routing"], card["trained_on"]) == ("example", "length", "squares")
    assert card["licence"] == "MIT"
    assert re.search(r", capszoo_example [0-9a-f]{10}$", card["revision"])
    for metric in card["metrics"]:
        installed(*metric["command"].split()[1:], "--json", "again.json")
        (again,) = json.loads((installed.root / "again.json").read_text())
        assert again["wrong"] == metric["wrong"]
    bright = installed("evaluate", "presets/example", "--protocol", "dark_error", "--set", "factor=1.0")
    assert f"({card['metrics'][0]['wrong']} of 40" in bright
    installed("export", "presets/example", "--out", "models")
    assert (installed.root / "models" / "example" / "1" / "saved_model.pb").is_file()
    bench = installed("bench", "presets/example", "--batch", 2, "--seconds", 0.01, "--out", "bench")
    assert "training" in bench
    rows = json.loads((installed.root / "bench" / "bench.json").read_text())["memory"]
    # Memory is measured in processes of their own, which know the plugin too.
    assert rows


COMPARISON = """
import keras, numpy as np, tensorflow as tf
from capszoo.layers import DenseCapsules
from capszoo.routing import cpu
from capszoo_example import compiled
from capszoo_example.routing import LengthRouting

layer = DenseCapsules(3, 5, LengthRouting(num_iterations=2))
children = tf.constant(np.random.default_rng(0).normal(size=(4, 6, 2)).astype("float32"))
slopes = tf.constant(np.random.default_rng(1).normal(size=(4, 3, 5)).astype("float32"))
layer.build(children.shape)
layer.kernel.assign(5 * layer.kernel)

def learnt(compiled_form):
    with cpu.host_calls(compiled_form), tf.GradientTape() as tape:
        tape.watch(children)
        poses = layer(children)
    return poses, *tape.gradient(poses, [children, layer.kernel.value], slopes)

for compiled_form, graph in zip(learnt(True), learnt(False)):
    np.testing.assert_allclose(compiled_form, graph, atol=1e-5)
assert compiled.backward_part.dispatcher.signatures, "the compiled form did not run"
"""


@pytest.mark.slow
def test_the_compiled_form_of_an_installed_routing_has_the_values_and_gradients_of_its_graph(installed):
    command = [sys.executable, "-c", COMPARISON]
    done = subprocess.run(
        command, cwd=installed.root, env=installed.environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
