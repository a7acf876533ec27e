"""Notebooks run in Colab's versions, install what they lack there, and replace nothing."""

import os
import subprocess
from pathlib import Path

import pytest
from environments import interpreter, uv, versions, wheel

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "colab"
# Colab's runtimes of autumn 2026, as far as a notebook touches them.
BOTH = ["numpy==2.1.3", "keras==3.13.2", "jax==0.7.2", "matplotlib", "scikit-learn", "pillow", "ipython"]
CPU = [
    "tensorflow==2.20.0",
    "numba==0.61.2",
    "protobuf==5.29.6",
    "tensorflow-probability==0.25.0",
    "tensorflow-datasets",
]
# A script shows nothing of a cell's last line, and there is no kernel for its magic.
ENVIRONMENT = {"MPLBACKEND": "agg", "CAPSZOO_NOTEBOOK_IMAGES": "48", "TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "left_out"), [(BOTH + CPU, set()), (BOTH, {"export_and_serve"})], ids=["cpu", "tpu"]
)
def test_notebooks_run_in_colabs_versions_and_replace_none_of_them(packages, left_out, tmp_path):
    python = tmp_path / "environment" / "bin" / "python"
    uv("venv", "-q", "--seed", "--python", interpreter("3.13"), tmp_path / "environment")
    uv("pip", "install", "-q", "--python", python, *packages)
    before = versions(python)
    # Where the first cell's pip finds a capszoo that no index has yet.
    (tmp_path / "wheels").mkdir()
    wheel(ROOT, tmp_path / "wheels")
    (tmp_path / "work").mkdir()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("KERAS_BACKEND", "PYTHONPATH", "XLA_FLAGS")
    }
    environment |= {**ENVIRONMENT, "PIP_FIND_LINKS": str(tmp_path / "wheels")}
    scripts = {path.stem: path for path in NOTEBOOKS.glob("*.py") if path.name != "execute.py"}
    for name in sorted(scripts.keys() - left_out):
        done = subprocess.run(
            [python, scripts[name]],
            cwd=tmp_path / "work",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}"
    after = versions(python)
    assert "capszoo" in after
    assert {name: after[name] for name in before} == before
    assert ("tensorflow" in after) == ("tensorflow" in before)
