"""How long capszoo takes to start, each time in a fresh process."""

import os
import statistics
import subprocess
import sys
import time


def startup(preset=None, runs=3):
    """Seconds from the start to the end of a process, medians of `runs` after one that fills the disk's cache.

    Returns `{"python": an empty program, "import capszoo": ..., "import keras": the backend, without which nothing can
    be loaded, "capszoo.load": of the preset, where one is given}`.
    Errors: `RuntimeError` with the last line of a program that failed.
    """
    programs = {"python": "pass", "import capszoo": "import capszoo", "import keras": "import keras"}
    if preset:
        programs["capszoo.load"] = f"import capszoo; capszoo.load({preset!r})"
    for program in programs.values():
        _run(program)
    # In turns, as everything here.
    rounds = [{name: _run(program) for name, program in programs.items()} for _ in range(runs)]
    return {name: statistics.median(each[name] for each in rounds) for name in programs}


def _run(program):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    started = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(f"{program!r} failed: {(result.stderr.strip().splitlines() or [''])[-1]}")
    return time.perf_counter() - started
