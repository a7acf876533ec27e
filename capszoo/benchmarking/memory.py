"""Peak memory of one step, each in a process of its own: `python -m capszoo.benchmarking.memory REQUEST`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras

from capszoo.training.accelerators import accelerators

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(request):
    """Bytes by which a step's peak lies above what the process held before it; None where that cannot be known.

    It is the operating system's high-water mark of resident memory, on an accelerator that of the backend's allocator.
    The step is the third: two smaller ones have compiled it.

    where:
      request: `{"variant", "batch", "name", "recipe"}` for a training step of a recipe's network, as plain data, also
        `images`, the fields of a `RandomImages`, for images other than the recipe's; or `{"variant", "problem"}` for
        one of a routing alone, the fields of a `Problem`.

    Errors: `RuntimeError` with the last line of a process that failed.
    """
    if not RESET.exists():
        return None
    result = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(request)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or [""])[-1]
        raise RuntimeError(f"a process for its memory ended with status {result.returncode}. {last}")
    return json.loads(result.stdout.splitlines()[-1])


def _step_of(request):
    """`step(size)` makes a training step for that many images."""
    import dataclasses

    from capszoo.benchmarking import networks, routing_alone

    if "problem" in request:
        problem = routing_alone.Problem(**request["problem"])
        return problem.batch, lambda size: routing_alone.steps(
            dataclasses.replace(problem, batch=size), request["variant"]
        )[1]
    from capszoo.zoo.recipes import parse_recipe

    recipe = parse_recipe(request["name"], request["recipe"])
    if "images" in request:
        recipe = dataclasses.replace(recipe, data=networks.RandomImages(**request["images"]))
    network = networks.Network(recipe, request["variant"], recipe.train.precision)
    return request["batch"], network.training_step


def _main(request):
    size, step_of = _step_of(request)
    for warm_up in (1, 2):
        step_of(warm_up)()
    measured = _of_process
    if accelerators():
        measured = _of_jax if keras.backend.backend() == "jax" else _of_tensorflow
    print(json.dumps(measured(step_of(size))))


def _of_process(step):
    RESET.write_text("5")  # sets the high-water mark to what is resident now
    before = _resident("VmRSS")
    step()
    return _resident("VmHWM") - before


def _of_tensorflow(step):
    import tensorflow as tf

    devices = tf.config.experimental
    devices.reset_memory_stats("GPU:0")
    before = devices.get_memory_info("GPU:0")["current"]
    step()
    return devices.get_memory_info("GPU:0")["peak"] - before


def _of_jax(step):
    """Its high-water mark cannot be set back: of all steps this is the largest."""
    import jax

    device = jax.local_devices()[0]
    before = device.memory_stats()["bytes_in_use"]
    step()
    return device.memory_stats()["peak_bytes_in_use"] - before


def _resident(key):
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
