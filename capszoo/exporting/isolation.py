"""Scripts that run in a process of their own, which knows nothing of capszoo."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def run_alone(script, *arguments):
    """Runs `script`, a file of this package, in a fresh interpreter and an empty folder.

    It imports what is installed, for the user too, and nothing from where it lies or from `PYTHONPATH`. It sees no
    accelerator: this process may hold all of its memory, and a CPU's numbers are compared.

    Errors: `RuntimeError` with the last lines the script wrote when it fails.
    """
    command = [sys.executable, "-EP", Path(__file__).with_name(script), *map(os.path.abspath, arguments)]
    with tempfile.TemporaryDirectory() as empty:
        result = subprocess.run(
            command,
            cwd=empty,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode != 0:
        tail = "\n".join(result.stderr.strip().splitlines()[-12:])
        raise RuntimeError(f"{script} failed with status {result.returncode}:\n{tail}")
