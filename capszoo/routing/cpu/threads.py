"""Kernels on all cores: each call of a kernel does one part of the work, and holds no other thread up."""

import concurrent.futures
import functools
import os


def in_parts(work, parts):
    """Calls `work(part)` for each of `range(parts)`, on as many threads as there are cores for this process."""
    if parts == 1:
        work(0)
        return
    left = iter(range(parts))

    def share(_):
        # The iterator gives each part to one thread, the next to whichever has finished first.
        for part in left:
            work(part)

    # As a list, so that what a thread raises is raised here.
    list(_pool().map(share, range(_cores())))


@functools.cache
def _pool():
    return concurrent.futures.ThreadPoolExecutor(_cores(), thread_name_prefix="routing")


def _cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


# A child process has the pool's memory but none of its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
