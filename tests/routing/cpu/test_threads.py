"""Parts of a kernel's work, shared out among threads."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from capszoo.routing.cpu import threads, votes


@pytest.mark.parametrize("parts", [0, 1, 2, 7])
def test_every_part_is_done_once(parts):
    done = []
    threads.in_parts(done.append, parts)
    assert sorted(done) == list(range(parts))


@pytest.mark.skipif(threads._cores() < 2, reason="one core")
def test_two_parts_are_done_at_the_same_time():
    together = threading.Barrier(2, timeout=20)
    threads.in_parts(lambda part: together.wait(), 2)


@pytest.mark.parametrize("images", [0, 1, 4, 9])
def test_every_image_lies_in_one_chunk(images):
    problem = SimpleNamespace(images=images)
    # As Python runs it, without compiling.
    chunks = [votes.chunk_of.py_func(problem, chunk) for chunk in range(votes.chunks(problem))]
    assert [image for chunk in chunks for image in chunk] == list(range(images))
    assert all(0 < len(chunk) <= votes.CHUNK for chunk in chunks)


@pytest.mark.parametrize("parts", [1, 3])
def test_what_a_part_raises_is_raised(parts):
    def work(part):
        raise ArithmeticError(f"in part {part}")

    with pytest.raises(ArithmeticError, match=r"^in part [0-2]$"):
        threads.in_parts(work, parts)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_threads_of_its_own():
    # So that there are threads that the child lacks.
    threads.in_parts(time.sleep, 2)
    child = os.fork()
    if not child:
        signal.alarm(20)
        threads.in_parts(lambda part: None, 2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
