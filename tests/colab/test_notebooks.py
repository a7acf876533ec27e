"""Notebooks say what their scripts say, show pictures, and run."""

import ast
import json
import os
import re
import site
import subprocess
import sys
from pathlib import Path

import pytest

import capszoo

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path for path in (ROOT / "colab").glob("*.py") if path.name != "execute.py")
MAX_BYTES = 400_000


def cells_of_script(path):
    """`(kind, text)` of each cell of a script in jupytext's percent format; a magic is a comment there."""
    _, *blocks = re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for block in blocks:
        marker, _, text = block.partition("\n")
        if marker.strip() == "[markdown]":
            yield "markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip()
        else:
            yield "code", re.sub(r"^# (%\w)", r"\1", text, flags=re.MULTILINE).strip()


def notebook(script):
    return json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_script(script):
    cells = [(cell["cell_type"], "".join(cell["source"]).strip()) for cell in notebook(script)["cells"]]
    assert cells == list(cells_of_script(script)), "`make notebooks` writes it anew"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_ran_without_an_error(script):
    assert script.with_suffix(".ipynb").stat().st_size < MAX_BYTES
    outputs = [output for cell in notebook(script)["cells"] for output in cell.get("outputs", ())]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    text = script.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert not re.findall(r"(?:/root|/home|/work)/", text), "a path of the machine that made it"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_its_first_cell_replaces_nothing_that_is_installed(script):
    first = next(text for kind, text in cells_of_script(script) if kind == "code")
    assert "find_spec" in first
    # A version is asked for where it is the installed one.
    assert not re.search(r"--upgrade|--force|==(?!\{importlib.metadata.version)|\bU\b", first)


def test_the_table_of_a_paper_is_that_of_the_cards():
    script = ROOT / "colab" / "a_papers_table.py"
    outputs = [output for cell in notebook(script)["cells"] for output in cell.get("outputs", ())]
    shown = "".join(
        "".join(output.get("text", output.get("data", {}).get("text/markdown", ""))) for output in outputs
    )
    (names,) = re.findall(r"^NAMES = (.+)$", script.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for name in ast.literal_eval(names):
        card = capszoo.get_preset(name).card
        metric = card.metrics[0]
        low, high = map(metric.text, metric.interval)
        assert f"| {name} | {metric.text(metric.value)} | {low} to {high} |" in shown
        assert "\n".join(f"  - {text}" for text in card.deviations) in shown


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """The Python of an environment with what executes notebooks, and behind it the libraries of this one."""
    folder = tmp_path_factory.mktemp("notebooks")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "-r", ROOT / "docs" / "requirements.txt"]
    subprocess.run(install, check=True)
    # A file of paths and no PYTHONPATH: the processes of an export do not look at that.
    paths = [*site.getsitepackages(), str(ROOT)]
    where = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"],
        check=True,
        capture_output=True,
        text=True,
    )
    (Path(where.stdout.strip()) / "capszoo.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    return python


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_runs(script, tools, tmp_path):
    for path in (script, ROOT / "colab" / "execute.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    environment = {**os.environ, "CAPSZOO_NOTEBOOK_IMAGES": "48"}
    command = [tools, tmp_path / "execute.py", tmp_path / script.name]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path, timeout=1500)
    assert (tmp_path / script.with_suffix(".ipynb").name).is_file()
