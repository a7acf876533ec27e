"""Seconds of several functions that are called in turn, and what they say of each other."""

import math
import statistics
import time

# A turn of a fast function repeats it until it has taken about this long: the clock and the scheduler are coarse.
TURN = 0.05
FEWEST, MOST = 5, 40
# Before a turn: threads of another library, of LiteRT or ONNX Runtime, spin for a while after their work is done.
REST = 0.02


def require_seconds(seconds):
    """Errors: `ValueError` for what is no number from 0 on."""
    if not seconds >= 0:  # true of NaN too
        raise ValueError(f"seconds must be a number from 0 on. Received: {seconds}")


def interleave(functions, seconds):
    """Seconds per call of each function, in turns: `{name: [(seconds, CPU seconds), one pair per round]}`.

    In every round each function has one turn, and each round begins with another function, so that whatever slows
    the machine for a while slows all of them. Every function is called twice before, for compilers and caches.

    CPU seconds are those of all threads of this process: work that other programs hardly change.

    where:
      functions: name -> function without arguments, which returns when its work is done.
      seconds: for how long rounds are begun; there are at least 5 and at most 40 of them.

    Errors: `ValueError` for seconds that are no number from 0 on.
    """
    require_seconds(seconds)
    calls = {}
    for name, function in functions.items():
        function()
        calls[name] = max(1, math.ceil(TURN / max(_time(function, 1)[0], 1e-9)))
    rounds = {name: [] for name in functions}
    names = list(functions)
    started = time.perf_counter()
    for number in range(MOST):
        if number >= FEWEST and time.perf_counter() - started > seconds:
            break
        first = number % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(REST)
            rounds[name].append(_time(functions[name], calls[name]))
    return rounds


def _time(function, calls):
    started, worked = time.perf_counter(), time.process_time()
    for _ in range(calls):
        function()
    return (time.perf_counter() - started) / calls, (time.process_time() - worked) / calls


def summarise(rounds, images):
    """Images per second of each function, and how it compares with each other one, from `interleave`.

        images_per_second = images / median over rounds of seconds
        faster_than[other] = median over rounds of seconds of other / seconds
        cpu_seconds = median over rounds of CPU seconds / images
        less_cpu_than[other] = median over rounds of CPU seconds of other / CPU seconds

    where:
      images: processed by one call.
      spread: images/s of the slowest and of the fastest round.
    """
    summary = {}
    for name, pairs in rounds.items():
        seconds, cpu = zip(*pairs, strict=True)
        summary[name] = {
            "images_per_second": images / statistics.median(seconds),
            "spread": [images / max(seconds), images / min(seconds)],
            "cpu_seconds": statistics.median(cpu) / images,
            "rounds": len(pairs),
            "faster_than": _ratios(rounds, name, 0),
            "less_cpu_than": _ratios(rounds, name, 1),
        }
    return summary


def _ratios(rounds, name, which):
    """Median over rounds of what others took, wall clock (0) or CPU (1), as multiples of what `name` took."""
    return {
        other: statistics.median(
            theirs[which] / max(ours[which], 1e-12) for ours, theirs in zip(rounds[name], pairs, strict=True)
        )
        for other, pairs in rounds.items()
        if other != name
    }
