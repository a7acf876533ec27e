"""Environments of their own, with other versions than this one's."""

import json
import shutil
import subprocess
import sys
from pathlib import Path


def interpreter(version):
    """A Python of this version: on the path, or one that pyenv keeps."""
    kept = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    found = [str(path) for path in kept] or [shutil.which(f"python{version}")]
    assert found[-1], f"Python {version} is needed"
    return found[-1]


def uv(*arguments, cwd=None):
    command = [sys.executable, "-m", "uv", *arguments]
    subprocess.run(command, check=True, cwd=cwd, stderr=subprocess.PIPE, text=True)


def versions(python):
    """What is installed beside `python`, by name."""
    command = [sys.executable, "-m", "uv", "pip", "list", "-q", "--format", "json", "--python", python]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {package["name"].lower(): package["version"] for package in json.loads(listed)}


def wheel(project, folder):
    """The wheel of a project, as `make wheels` builds it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=project, check=True, stdout=subprocess.PIPE)
    (built,) = folder.glob("*.whl")
    return built
