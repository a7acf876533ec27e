"""What somebody does in the first hour, as one script in a fresh environment with the wheel."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tiny_pictures import write_folder

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("script.py")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Python of an environment that has the wheel, and everything else from the one that tests run in."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("capszoo-*.whl")
    venv.create(folder / "environment", with_pip=False)
    inside = folder / "environment" / "bin" / "python"
    site = subprocess.run(
        [inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    shutil.unpack_archive(wheel, site, "zip")
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    # After the environment's own, so that the wheel's package is the one that is imported.
    (Path(site) / "libraries.pth").write_text(f"{libraries}\n")
    return inside


@pytest.mark.slow
def test_the_first_hour(python, tmp_path):
    write_folder(tmp_path / "pictures", count=15)
    for path in ("docs/start.md", "colab/quick_start.py"):
        shutil.copy(ROOT / path, tmp_path)
    environment = {**os.environ, "CAPSZOO_HOME": str(tmp_path / "home")}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert len(steps) == 12, done.stdout
