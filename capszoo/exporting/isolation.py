"""Scripts that run in a process of their own, which knows nothing of capszoo."""

import contextlib
import os
import pickle
import re
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path


def run_alone(script, *arguments):
    """Runs `script`, a file of this package, in a fresh interpreter and an empty folder.

    It imports what is installed, for the user too, and nothing from where it lies or from `PYTHONPATH`. It sees no
    accelerator: this process may hold all of its memory, and a CPU's numbers are compared.

    Errors: `RuntimeError` with the last lines the script wrote when it fails.
    """
    with tempfile.TemporaryDirectory() as empty:
        result = subprocess.run(
            _command(script, arguments),
            cwd=empty,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode != 0:
        raise _failure(script, result.returncode, result.stderr)


class Alone:
    """A function that `script` computes in a process of its own, which ends with this object.

    The process imports and sees what that of `run_alone` does; its folder is that of temporary files.

    where:
      script: reads pickles from its standard input and answers each with one.
      arguments: of the script.
      variables: of its environment, where this process has none of that name.

    Errors of a call: `RuntimeError` with the last lines the script wrote when it has ended.
    """

    def __init__(self, script, *arguments, variables):
        self.script = script
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with this object)
        self.process = subprocess.Popen(
            _command(script, arguments),
            cwd=tempfile.gettempdir(),
            env={**variables, **_environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )
        weakref.finalize(self, _end, self.process)

    def __call__(self, value):
        try:
            pickle.dump(value, self.process.stdin)
            self.process.stdin.flush()
            return pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            status = self.process.wait()
            self.errors.seek(0)
            raise _failure(self.script, status, self.errors.read().decode(errors="replace")) from error
        except BaseException:
            # An answer that was not read would be taken for that of the next call.
            self.process.kill()
            raise


def _command(script, arguments):
    return [sys.executable, "-EP", Path(__file__).with_name(script), *map(os.path.abspath, arguments)]


def _environment():
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def _failure(script, status, written):
    """What a script wrote at its end, after what it called an error further above: converters write a whole graph."""
    lines = written.strip().splitlines()
    above, tail = lines[:-12], lines[-12:]
    causes = [line[:500] for line in above if re.search(r"\berror:", line)][-3:]
    said = "\n".join([*causes, *tail])
    return RuntimeError(f"{script} failed with status {status}:\n{said}")


def _end(process):
    # It holds nothing that could be lost.
    process.kill()
    process.wait()
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
