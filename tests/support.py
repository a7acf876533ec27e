"""Tools of the tests: numeric gradients, known weights, a look into traced graphs, dtype policies,
runs that are killed."""

import collections
import contextlib
import resource
import shutil

import keras
import numpy as np

from capszoo.progress import Progress
from capszoo.training.run import train
from capszoo.training.weight_files import read_arrays

POLICIES = ("mixed_float16", "mixed_bfloat16")


def numeric_gradient(function, point, step=1e-6):
    """Central differences of a scalar function of one float64 array."""
    point = np.asarray(point, dtype=np.float64)
    gradient = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        shift = np.zeros_like(point)
        shift[index] = step
        gradient[index] = (function(point + shift) - function(point - shift)) / (2 * step)
    return gradient


def fill(layer, seed=7, scale=0.3):
    """Gives a built layer or model weights that depend on nothing but their order, shapes and `seed`.

    Variances of normalisations are not negative.
    """
    rng = np.random.default_rng(seed)
    values = [scale * rng.normal(size=weight.shape) for weight in layer.weights]
    variances = [weight.path.endswith("variance") for weight in layer.weights]
    layer.set_weights(
        [np.abs(value) if positive else value for value, positive in zip(values, variances, strict=True)]
    )
    return layer


def assert_nearer_than_other_rows(outputs, expected, share):
    """Outputs by name differ from the expected ones by less than a share of what those of other rows differ by."""
    for name, tensor in expected.items():
        array, output = np.asarray(tensor), np.asarray(outputs[name])
        others = np.abs(array - np.roll(array, 1, axis=0)).max()
        assert np.abs(output - array).max() < share * others, name


def by_path(layer):
    """The shapes of a layer's weights by their path below the layer."""
    return {weight.path.partition("/")[2]: tuple(weight.shape) for weight in layer.weights}


def arrays(outputs):
    """The tensors of any structure of outputs, as a flat list of NumPy arrays."""
    return [np.asarray(keras.ops.convert_to_numpy(tensor)) for tensor in keras.tree.flatten(outputs)]


@contextlib.contextmanager
def dtype_policy(name):
    """Layers made inside have the dtype policy `name`."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def traced(function, *arguments):
    """What TensorFlow traces of `function`: operations at the top, and operations inside functions it calls."""
    import tensorflow as tf

    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph.as_graph_def()
    top = collections.Counter(node.op for node in graph.node)
    inside = collections.Counter(node.op for part in graph.library.function for node in part.node_def)
    return top, inside


@contextlib.contextmanager
def full_disk(size):
    """No file can grow beyond `size` bytes: writing more fails, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Killed(BaseException):
    """What ends a run in the middle of a step; no handler for errors catches it."""


class Recorded(Progress):
    """Progress that remembers all that was reported.

    where:
      begun: `(title, total, done)` of each task.
      counts, numbers: of each advance.
      said: lines.
    """

    def __init__(self):
        self.begun, self.counts, self.numbers, self.said = [], [], [], []

    def begin(self, title, total, done=0):
        self.begun.append((title, total, done))

    def advance(self, count=1, numbers=None):
        self.counts.append(count)
        self.numbers.append(numbers and dict(numbers))

    def say(self, text):
        self.said.append(text)


class SixthStep(Progress):
    """Progress of a run that calls a function at its sixth step."""

    def __init__(self, act):
        self.steps, self.act = 0, act

    def advance(self, count=1, numbers=None):
        self.steps += 1
        if self.steps == 6:
            self.act()


def _kill():
    raise Killed


def state_of_a_killed_run(recipe, folder):
    """The last checkpoint's arrays of a run that was killed at its sixth step and started again."""
    with contextlib.suppress(Killed):
        train(recipe, folder, SixthStep(_kill))
    return _state_of_the_rest(recipe, folder)


def states_of_whole_and_killed(recipe, folder):
    """The last checkpoints' arrays of a run, and of one that goes on from what was on the disk at its sixth step.

    To train twice instead of three times: most of the time of a small run goes into tracing.
    """
    whole, killed = folder / "whole", folder / "killed"
    train(recipe, whole, SixthStep(lambda: shutil.copytree(whole, killed)))
    expected, _ = read_arrays(whole / "checkpoint.safetensors")
    return expected, _state_of_the_rest(recipe, killed)


def _state_of_the_rest(recipe, folder):
    assert read_arrays(folder / "checkpoint.safetensors")[1]["step"] < 6, "nothing is left to do"
    train(recipe, folder)
    return read_arrays(folder / "checkpoint.safetensors")[0]


def assert_same_state(arrays, expected):
    """Two checkpoints hold the same arrays, bit for bit."""
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
