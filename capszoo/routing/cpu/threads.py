"""Kernels on all cores: each call of a kernel does one part of the work, and holds no other thread up."""

import concurrent.futures
import functools
import os

import numpy as np

# Images that a thread takes at once. Gradients of weights are summed by chunks, so that they do not depend on the
# number of threads.
CHUNK = 4


def chunks(images):
    """How many chunks there are of so many images."""
    return -(-images // CHUNK)


def in_chunks(chunk_kernel, images, *arguments):
    """Calls `chunk_kernel(*arguments, chunk, end)` for all chunks; `end` is the first image after the chunk."""
    in_parts(lambda chunk: chunk_kernel(*arguments, chunk, min(images, (chunk + 1) * CHUNK)), chunks(images))


def no_gradients(inputs, images):
    """Zeros for gradients of `inputs`, flat: poses and activations of the images, then weights, these by chunk."""
    of_images, weights = inputs[:2], inputs[2:]
    by_chunk = [np.zeros(chunks(images) * len(weight), weight.dtype) for weight in weights]
    return [*(np.zeros_like(array) for array in of_images), *by_chunk]


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
