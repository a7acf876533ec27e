"""TensorFlow's import says which libraries it found; a command says what it was asked.

TensorFlow's C++ code writes lines of the level "information" straight to the standard error as its libraries are
loaded, before it looks at TF_CPP_MIN_LOG_LEVEL. Only those lines are left out, and only during the import: a process
of its own passes all others on, so that the last words of an import that kills this one are not lost.
"""

import contextlib
import logging
import os
import subprocess
import sys

from capszoo.extras.importing import around_import

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# As `quieten` has set it.
_levels_here: dict[str, str] = {}
FILTER = r"""
import re, sys
for line in sys.stdin.buffer:
    if not re.match(rb"I\d{4} |WARNING: All log messages before absl::InitializeLog", line):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
"""


def quieten():
    """Leaves out TensorFlow's start-up lines, should it be imported later, and its advice on retracing.

    The latter is for who wrote the code: a command that measures many networks traces a function for each.
    """
    logging.getLogger("tensorflow").addFilter(_is_no_advice_on_retracing)
    if LEVEL not in os.environ:
        # Without a GPU it is no error that CUDA finds none; with one, errors are for its user.
        os.environ[LEVEL] = _levels_here[LEVEL] = "2" if os.path.exists("/dev/nvidiactl") else "3"
    around_import("tensorflow", _filtered)


def environment_as_given() -> dict[str, str]:
    """The environment that this process was started in, for a server in its place, whose errors are the user's."""
    return {name: value for name, value in os.environ.items() if _levels_here.get(name) != value}


@contextlib.contextmanager
def _filtered():
    """What is written to the standard error goes through `FILTER`."""
    if sys.stderr is None:  # closed by who has started this process
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with subprocess.Popen([sys.executable, "-S", "-c", FILTER], stdin=subprocess.PIPE) as reader:
        os.dup2(reader.stdin.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def _is_no_advice_on_retracing(record):
    return "tf.function retracing" not in record.getMessage()
