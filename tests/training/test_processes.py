"""Processes that train together make the weights that one makes, and go on with the same bits when one is killed."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from tiny import RECIPE, write_mnist

from capszoo.config import ConfigError
from capszoo.training.log import read_log
from capszoo.training.processes import Processes, joined
from capszoo.training.run import train
from capszoo.training.weight_files import read_arrays
from capszoo.zoo.recipes import read_recipe

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
COMMAND = [sys.executable, "-m", "capszoo", "train"]
TINY = ["tiny.yaml"]
# A published recipe, a few steps of it; gradients that are all but zero go by Adam's sign, so its steps are small.
PRESET = [
    "matrix_em_mnist",
    "data.validation=50",
    "train.epochs=1",
    "train.images=192",
    "train.batch_size=32",
    "train.learning_rate=1e-4",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a recipe of six steps of 40 images, of a network that compiles fast, and its data."""
    folder = tmp_path_factory.mktemp("processes")
    recipe = RECIPE.replace("batch_size: 50", "batch_size: 40, average: 0.5")
    (folder / "capsules.yaml").write_text(recipe, encoding="utf-8")
    recipe = recipe.replace("routing: dynamic", "routing: none")
    recipe = recipe.replace("{name: dynamic, channels: 16, primary_types: 4}", "{name: cnn}")
    (folder / "tiny.yaml").write_text(recipe, encoding="utf-8")
    write_mnist(folder / "data")
    (folder / "hidden").mkdir()
    for library in ("tensorflow", "sklearn", "matplotlib"):  # Keras imports them where it finds them.
        (folder / "hidden" / f"{library}.py").write_text("raise ImportError('hidden')", encoding="utf-8")
    return folder


def environment(folder, backend="jax", **more):
    """Of a process that finds its data in the folder, and under JAX nothing that training there does not need."""
    hidden = [str(folder / "hidden")] if backend == "jax" else []
    return {
        **os.environ,
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "CAPSZOO_DATA_DIR": str(folder / "data"),
        "TFDS_DATA_DIR": str(folder / "none"),
        "PYTHONPATH": os.pathsep.join(hidden + [path for path in sys.path if path]),
        **more,
    }


def named(count):
    """What the environment says to each of so many processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    prefix = "KERAS_DISTRIBUTION_"
    common = {f"{prefix}JOB_ADDRESSES": address, f"{prefix}NUM_PROCESSES": str(count)}
    return [{**common, f"{prefix}PROCESS_ID": str(index)} for index in range(count)]


def begun(folder, out, count, recipe=TINY):
    """So many processes, begun, that train `recipe` in the folder `out` together."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [*COMMAND, *recipe, "--out", out]
    return [
        subprocess.Popen(command, cwd=folder, env=environment(folder, **names), **pipes)
        for names in (named(count) if count > 1 else [{}])
    ]


def ended(processes):
    for process in processes:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said


@pytest.fixture(scope="module")
def alone(folder):
    """The run of a single process."""
    ended(begun(folder, "alone", 1))
    return folder / "alone"


def assert_same(run, other, tolerance):
    for file in ("best.safetensors", "checkpoint.safetensors"):
        (found, metadata), (expected, expected_metadata) = (read_arrays(path / file) for path in (run, other))
        assert metadata == expected_metadata
        assert found.keys() == expected.keys()
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=tolerance, err_msg=name)


def steps(run):
    return [record["step"] for record in read_log(run)]


@needs_jax
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_make_the_weights_that_one_makes(folder, alone, count):
    ended(begun(folder, f"together{count}", count))
    assert_same(folder / f"together{count}", alone, 1e-6)
    assert steps(folder / f"together{count}") == steps(alone) == [3, 6]


@needs_jax
@pytest.mark.slow
def test_processes_and_devices_make_the_weights_of_a_preset_that_one_device_makes(folder):
    for count in (1, 2, 4):
        ended(begun(folder, f"preset{count}", count, PRESET))
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [*COMMAND, *PRESET, "--out", "devices"]
    subprocess.run(command, cwd=folder, env=environment(folder, **flags), check=True)
    for run in ("preset2", "preset4", "devices"):
        assert_same(folder / run, folder / "preset1", 1e-6)
    assert steps(folder / "preset1") == [6]


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_all_are_started_again_after_one_was_killed_and_end_with_the_same_bits(folder, victim):
    ended(begun(folder, f"whole{victim}", 2))
    processes = begun(folder, f"broken{victim}", 2)
    checkpoint = folder / f"broken{victim}" / "checkpoint.safetensors"
    while not checkpoint.exists() and all(process.poll() is None for process in processes):
        time.sleep(0.05)
    processes[victim].send_signal(signal.SIGKILL)
    for process in processes:
        process.kill()
        process.communicate()
    assert processes[victim].returncode == -signal.SIGKILL
    assert read_arrays(checkpoint)[1]["step"] < steps(folder / f"whole{victim}")[-1], (
        "something was left to do"
    )
    ended(begun(folder, f"broken{victim}", 2))
    assert_same(folder / f"broken{victim}", folder / f"whole{victim}", 0)


def refused(processes):
    """What processes say that all end with an error, at once: an abort by JAX comes after minutes."""
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [1, 1], said
    return [text.splitlines()[-1] for text in said]


@needs_jax
@pytest.mark.slow
def test_all_processes_say_that_the_folder_holds_a_run_of_another_recipe(folder, alone):
    first, second = refused(begun(folder, "alone", 2, [*TINY, "train.learning_rate=0.5"]))
    assert first.startswith("error: alone holds a run of another recipe (train.learning_rate: 0.001 -> 0.5).")
    assert second == f"error: the first process ended with OtherRun: {first.removeprefix('error: ')}"


@needs_jax
@pytest.mark.slow
def test_all_processes_say_that_the_first_cannot_write(folder):
    (folder / "full" / "recipe.yaml").mkdir(parents=True)
    first, second = refused(begun(folder, "full", 2))
    assert "full/recipe.yaml" in first
    assert second.startswith("error: the first process ended with ")
    assert first.removeprefix("error: ") in second


# `capszoo train` in a process whose processor is so many devices of TensorFlow.
ON_DEVICES = """
import sys
import tensorflow as tf

devices = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv.pop(1))
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
from capszoo.cli import main
main()
"""


def on_devices(folder, count, out, *recipe):
    command = [sys.executable, "-c", ON_DEVICES, str(count), "train", *recipe, "--out", out]
    surroundings = environment(folder, "tensorflow")
    done = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / out


@pytest.mark.slow
def test_replicas_of_tensorflow_make_the_weights_that_one_device_makes(folder):
    # A bound that every step meets, and decay: with the average of weights, what Keras does otherwise under replicas.
    # No dropout, whose masks each replica draws for itself.
    recipe = ["capsules.yaml", "train.gradient_clip=0.01", "train.weight_decay=0.1"]
    runs = [on_devices(folder, count, f"replicas{count}", *recipe) for count in (1, 2)]
    assert_same(*runs, 1e-6)
    assert steps(runs[0]) == steps(runs[1]) == [3, 6]


@pytest.mark.slow
def test_replicas_give_loaded_weights_the_rate_that_one_device_gives(folder):
    recipe = ["capsules.yaml", "train.gradient_clip=null"]
    start = on_devices(folder, 1, "begun", *recipe)
    recipe += [f"train.start_from={start}", "train.pretrained_rate=0.01"]
    runs = [on_devices(folder, count, f"slow{count}", *recipe) for count in (1, 2)]
    assert_same(*runs, 1e-6)
    moved = [
        np.abs(read_arrays(run / "best.safetensors")[0][name] - weights).max()
        for run in runs
        for name, weights in read_arrays(start / "best.safetensors")[0].items()
    ]
    assert 0 < max(moved) < 1e-4


def test_replicas_normalise_by_the_batch_and_not_by_their_part_of_it():
    from capszoo.training.replicas import Replicas

    replicas = Replicas(["CPU:0"])
    with replicas.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()])
    Processes(replicas=replicas).prepare(SimpleNamespace(model=model, losses={}))
    assert model.layers[0].synchronized


@pytest.mark.parametrize("name", ["sparse_mnist", "scae_mnist"])
def test_what_looks_at_the_whole_batch_is_not_given_to_replicas(name):
    from capszoo.training.replicas import Replicas

    recipe = read_recipe(name)
    objective = recipe.objective(recipe.build())
    with pytest.raises(ConfigError, match=r"(sparse_mask|presence_sparsity).* look at the whole batch"):
        Replicas.prepare(None, objective)


@pytest.mark.slow
def test_replicas_of_tensorflow_make_the_weights_of_a_preset(folder):
    assert_same(*(on_devices(folder, count, f"mirrored{count}", *PRESET) for count in (1, 4)), 1e-6)


def test_each_process_takes_its_own_part_of_every_array():
    batch = {"images": np.arange(24).reshape(12, 2), "labels": [np.arange(12)]}
    shares = [Processes(index, 3, 6).share(batch) for index in range(3)]
    np.testing.assert_array_equal(np.concatenate([share["images"] for share in shares]), batch["images"])
    np.testing.assert_array_equal(shares[1]["labels"][0], [4, 5, 6, 7])


@pytest.mark.parametrize("option", ["train.batch_size=25", "stages.first.train.batch_size=25"])
def test_a_batch_that_does_not_divide_is_refused_before_the_folder_is_the_recipes(
    folder, monkeypatch, option
):
    monkeypatch.setattr("capszoo.training.run.joined", lambda: Processes(devices=2))
    recipe = read_recipe(folder / "tiny.yaml", [option])
    with pytest.raises(ConfigError, match=r"multiple of the 2 devices. Received: 25"):
        train(recipe, folder / "odd")
    assert not (folder / "odd").exists()


@needs_jax
def test_reading_any_recipe_leaves_processes_to_be_joined(folder):
    # Once JAX has computed anything it refuses to join others.
    code = "from capszoo.zoo import recipes; [recipes.read_recipe(name) for name in recipes.names()]; "
    code += "from capszoo.training.processes import joined; assert joined().count == 1"
    (names,) = named(1)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(folder, **names), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@needs_jax
@pytest.mark.slow
def test_sigterm_ends_every_process(folder):
    processes = begun(folder, "terminated", 2, [*TINY, "train.epochs=1000"])
    checkpoint = folder / "terminated" / "checkpoint.safetensors"
    while not checkpoint.exists() and all(process.poll() is None for process in processes):
        time.sleep(0.05)
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate(timeout=60)
    codes = [process.returncode for process in processes]
    assert -signal.SIGTERM in codes
    assert 0 not in codes


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            {"PROCESS_ID": "0", "JOB_ADDRESSES": "a:1"},
            "NUM_PROCESSES: how many processes there are is needed",
        ),
        ({"NUM_PROCESSES": "two"}, "NUM_PROCESSES: .*Received: 'two'"),
        ({"NUM_PROCESSES": "0"}, "NUM_PROCESSES: .*Received: '0'"),
        ({"NUM_PROCESSES": "2", "PROCESS_ID": ""}, "PROCESS_ID: .*Received: ''"),
        ({"NUM_PROCESSES": "2", "PROCESS_ID": "2"}, "PROCESS_ID: must be less than 2"),
        (
            {"NUM_PROCESSES": "2", "JOB_ADDRESSES": "10.0.0.1"},
            "JOB_ADDRESSES: HOST:PORT .*Received: '10.0.0.1'",
        ),
    ],
)
def test_variables_that_name_no_processes_are_refused_by_name(names, message, monkeypatch):
    for name, value in names.items():
        monkeypatch.setenv(f"KERAS_DISTRIBUTION_{name}", value)
    with pytest.raises(ConfigError, match=f"KERAS_DISTRIBUTION_{message}"):
        joined()


def test_several_processes_need_jax(monkeypatch):
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
    with pytest.raises(ConfigError, match="needs KERAS_BACKEND=jax"):
        joined()
