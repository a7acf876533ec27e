"""What a user can mend is one line and exit status 1, whichever library has met it."""

import pytest
import tensorflow as tf

from capszoo import cli

ERRORS = [
    ValueError("a wrong key"),
    MemoryError("a wrong key"),
    tf.errors.ResourceExhaustedError(None, None, "a wrong key\nand where in the graph"),
]


def test_what_stands_in_brackets_is_no_markup_of_the_help(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, said, _ = run("train", "--help")
    assert "[default: runs/RECIPE]" in said


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_one_line(run, monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(cli, "app", fail)
    status, _, said = run("list")
    assert status == 1
    assert said.startswith("error: ")
    assert "a wrong key" in said
    assert said.count("\n") == 1


def test_a_fault_of_the_zoo_is_shown_whole(run, monkeypatch):
    def fail():
        raise KeyError("nobody expects this")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(KeyError):
        run("list")
