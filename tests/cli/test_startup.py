"""A command says what it was asked, and not which libraries TensorFlow found as it started."""

import logging
import os
import subprocess
import sys

import pytest

from capszoo.cli import startup

# What TensorFlow's C++ code writes as its libraries are loaded.
CHATTER = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1795375502.779224   16357 port.cc:153] oneDNN custom operations are on.\n"
)
FATAL = "F0000 00:00:1795375502.779224   16357 cpu.cc:11] compiled to use AVX instructions, which are not available\n"
IMPORT = "from capszoo.cli.startup import quieten; quieten(); "


@pytest.fixture
def start(tmp_path):
    """`start(body, code)`: standard error and exit status of `code`; importing TensorFlow does what `body` says."""

    def run(body, code="import tensorflow"):
        (tmp_path / "tensorflow.py").write_text(
            f"import os, sys\nos.write(2, {CHATTER.encode()!r})\n{body}\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", IMPORT + code], env=environment, capture_output=True, text=True
        )
        return done.stderr, done.returncode

    return run


def test_start_up_lines_are_left_out(start):
    assert start("") == ("", 0)


def test_warnings_and_what_comes_after_the_import_are_not(start):
    warning = "W0000 00:00:1.0 1 x.cc:1] a warning\n"
    later = "I0000 00:00:1.0 1 x.cc:1] later\n"
    body = f"print({warning!r}, end='', file=sys.stderr)"
    assert start(body, f"import tensorflow, os; os.write(2, {later.encode()!r})") == (warning + later, 0)


def test_advice_on_retracing_is_left_out_and_other_warnings_are_not(monkeypatch):
    logger, heard = logging.getLogger("tensorflow"), []
    # TensorFlow, where it has been imported, has a handler of its own there and a level.
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(logger, "callHandlers", lambda record: heard.append(record.getMessage()))
    startup.quieten()
    for said in ("5 out of the last 5 calls to <f> triggered tf.function retracing. ", "another warning"):
        logger.handle(logging.makeLogRecord({"msg": said}))
    assert heard == ["another warning"]


def test_the_last_words_of_an_import_that_kills_the_process_are_shown(start):
    stderr, status = start(f"os.write(2, {FATAL.encode()!r}); os.abort()")
    assert FATAL in stderr
    assert status != 0


def test_an_import_that_fails_fails_as_before(start):
    stderr, status = start("raise ImportError('no such library')")
    assert stderr.endswith("ImportError: no such library\n")
    assert status == 1


@pytest.mark.parametrize("error", [RuntimeError, ImportError, ValueError, OSError, ArithmeticError])
def test_an_error_that_a_user_can_mend_is_one_line_and_exit_status_1(run, monkeypatch, error):
    def fail(name):
        raise error("the reason")

    monkeypatch.setattr("capszoo.zoo.presets.get_preset", fail)
    monkeypatch.setattr("capszoo.zoo.listing.get_preset", fail)
    assert run("list") == (1, "", "error: the reason\n")


def test_without_a_standard_error_there_is_nothing_to_leave_out(tmp_path):
    (tmp_path / "tensorflow.py").touch()
    command = f"{sys.executable} -c '{IMPORT}import tensorflow; print(1)' 2>&-"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(["sh", "-c", command], env=environment, stdout=subprocess.PIPE, text=True)
    assert (done.stdout, done.returncode) == ("1\n", 0)
