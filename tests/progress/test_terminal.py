"""What work says of itself is shown in the terminal, and a bar gets in nobody's way."""

import threading

from rich.console import Console

from capszoo.progress import QUIET
from capszoo.progress.terminal import TerminalProgress


def test_a_bar_has_no_thread_that_could_import_while_a_data_set_is_opened():
    before = threading.active_count()
    with TerminalProgress() as progress:
        progress.begin("test_error", total=100)
        progress.advance(50)
        assert threading.active_count() == before


def test_the_bar_counts_the_parts_of_the_last_task(monkeypatch):
    progress = TerminalProgress()
    progress.begin("first", total=10)
    progress.begin("second", total=20, done=5)
    progress.advance(3, {"loss": 0.25})
    (task,) = progress.bar.tasks
    assert (task.description, task.completed, task.total) == ("second", 8, 20)
    assert task.fields["numbers"] == "loss 0.2500"


def test_lines_stay_whole_and_as_they_are(capsys):
    line = "a line of [brackets] and numbers 0.25, " * 8
    with TerminalProgress() as progress:
        progress.console = Console(width=40)
        progress.begin("task", total=2)
        progress.say(line)
    assert line in capsys.readouterr().out.splitlines()


def test_a_bar_leaves_nothing_in_a_file(capsys):
    with TerminalProgress() as progress:
        progress.begin("task", total=2)
        progress.advance(2)
    assert capsys.readouterr().out == ""


def test_parts_that_are_done_before_a_task_begins_are_no_error():
    TerminalProgress().advance(3)


def test_work_may_go_unwatched():
    QUIET.begin("task", total=2)
    QUIET.advance()
    QUIET.say("done")
