"""Model servers, one started on the bundle of each classifying preset."""

import importlib.util
import os
import subprocess
import sys
import urllib.error
from pathlib import Path

import pytest
from serving.servers import KIT, NAMES, TensorFlowServing, bundle_of, kserve


@pytest.fixture(scope="session")
def load():
    """The kit's load script."""
    specification = importlib.util.spec_from_file_location("load", KIT / "clients" / "load.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """An interpreter with KServe's server, without capszoo."""
    python = tmp_path_factory.mktemp("kserve") / "environment" / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, python.parents[1]], check=True)
    subprocess.run([*uv, "pip", "install", "-q", "--python", python, "kserve", "tensorflow-cpu"], check=True)
    return python


@pytest.fixture(scope="module", params=NAMES)
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    bundles = Path(os.environ.get("CAPSZOO_BUNDLES", folder)).resolve()
    address = os.environ.get("CAPSZOO_SERVER", "").rstrip("/")
    if not address:
        with kserve(request.param, request.getfixturevalue("python"), bundles, folder) as started:
            yield started
        return
    server = TensorFlowServing(address, request.param, bundle_of(request.param, bundles))
    try:
        server.available()
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        pytest.skip(f"{address} does not serve {request.param}")
    yield server
