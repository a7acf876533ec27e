"""The site, built once, and the browser that opens it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built site: what `make docs` does, with this environment's capszoo."""
    if shutil.which("npm") is None:
        pytest.skip("no npm is installed, which fetches what the demo page runs with (apt-get install npm)")
    tools = os.environ.get("CAPSZOO_SITE_TOOLS") or tmp_path_factory.mktemp("site") / "tools"
    binaries = Path(sys.executable).parent
    subprocess.run(
        ["make", "docs", "-o", ".venv/ready", f"BIN={binaries}", f"SITE={tools}"], cwd=ROOT, check=True
    )
    return ROOT / "build" / "site"


@pytest.fixture(scope="session")
def browser():
    """The path of an installed Chromium."""
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    return next(found, None) or pytest.skip("no Chromium is installed (apt-get install chromium)")
