"""No kernel is called with what it would read or write beyond."""

import functools
import importlib
import pkgutil

import numpy as np
import pytest
import tensorflow as tf

from capszoo.layers import ConvCapsules, NormalisedConvCapsules
from capszoo.routing import EMRouting, KernelRouting, LSTMRouting, cpu
from capszoo.routing.cpu.entrance import Kernel

KERNELS = {
    "em_forward.forward_chunk",
    "em_backward.backward_chunk",
    "similarity.forward_chunk",
    "similarity.backward_chunk",
    "recurrent.forward_chunk",
    "recurrent_backward.backward_chunk",
}
every_kernel = pytest.mark.parametrize("name", sorted(KERNELS))


@functools.cache
def kernels():
    """All kernels of the package, by module and name."""
    modules = [
        importlib.import_module(f"{cpu.__name__}.{found.name}")
        for found in pkgutil.iter_modules(cpu.__path__)
    ]
    return {
        f"{module.__name__.rsplit('.', 1)[-1]}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Kernel) and value.dispatcher.py_func.__module__ == module.__name__
    }


@pytest.fixture(scope="module")
def calls():
    """A call of each kernel that it would accept: its problem and its groups of arrays. None is really made."""
    found, names = {}, {kernel: name for name, kernel in kernels().items()}

    def record(kernel, problem, *groups):
        found[names[kernel]] = problem, groups

    grid = tf.ones((2, 4, 4, 2, 4, 4)), tf.ones((2, 4, 4, 2))
    layers = [
        (ConvCapsules(3, 3, 1, EMRouting(2)), grid),
        (NormalisedConvCapsules(3, 3, 1, KernelRouting(2)), grid),
        (NormalisedConvCapsules(3, 3, 1, LSTMRouting(4, (3,), num_iterations=2)), grid),
    ]
    with pytest.MonkeyPatch.context() as patch, cpu.host_calls(True):
        patch.setattr(Kernel, "__call__", record)
        for layer, inputs in layers:
            with tf.GradientTape() as tape:
                value = sum(tf.reduce_sum(part) for part in tf.nest.flatten(layer(inputs)))
            tape.gradient(value, layer.kernel.value)
    return found


@pytest.fixture
def refused(calls, monkeypatch):
    """`refused(name, error, message, problem, groups)`: this kernel refuses such a call before it has begun."""

    def begun(*arguments):
        raise AssertionError("compiled code was called")

    def expect(name, error, message, problem, groups):
        kernel = kernels()[name]
        monkeypatch.setattr(kernel, "dispatcher", begun)
        with pytest.raises(error, match=message):
            kernel(problem, *groups)

    return expect


def changed(groups, change):
    """`groups` with one array changed, for every array."""
    for g, group in enumerate(groups):
        parts = group if hasattr(group, "_fields") else (group,)
        for p, part in enumerate(parts):
            new = [*parts[:p], change(part), *parts[p + 1 :]]
            yield [*groups[:g], type(group)(*new) if hasattr(group, "_fields") else new[0], *groups[g + 1 :]]


def test_every_kernel_is_known_here(calls):
    assert kernels().keys() == calls.keys() == KERNELS


@every_kernel
def test_what_routing_gives_it_is_accepted(calls, name, monkeypatch):
    problem, groups = calls[name]
    parts = []
    monkeypatch.setattr(kernels()[name], "dispatcher", lambda *arguments: parts.append(arguments[-1]))
    kernels()[name](problem, *groups)
    assert parts


@every_kernel
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_an_array_of_another_dtype_is_refused(calls, refused, name, dtype):
    problem, groups = calls[name]
    for wrong in changed(groups, lambda array: np.zeros(array.shape, dtype)):
        refused(name, TypeError, f"must be an array of float32. Received: {dtype}", problem, wrong)


@every_kernel
def test_what_is_no_array_is_refused(calls, refused, name):
    problem, groups = calls[name]
    for wrong in changed(groups, lambda array: array.tolist()):
        refused(name, TypeError, "must be an array of float32. Received: list", problem, wrong)


@every_kernel
def test_an_array_that_is_too_small_or_of_another_shape_is_refused(calls, refused, name):
    problem, groups = calls[name]
    for change in (lambda array: array[:-1], lambda array: array[None], lambda array: array[..., :-1].copy()):
        for wrong in changed(groups, change):
            refused(name, ValueError, r"must have the shape \(.*\). Received: \(", problem, wrong)


@every_kernel
def test_an_array_with_gaps_between_its_numbers_is_refused(calls, refused, name):
    problem, groups = calls[name]
    for wrong in changed(groups, lambda array: np.repeat(array, 2, axis=-1)[..., ::2]):
        refused(name, ValueError, "must be contiguous", problem, wrong)


@every_kernel
def test_a_problem_of_more_than_its_arrays_hold_is_refused(calls, refused, name):
    problem, groups = calls[name]
    sizes = "images", "children", "matrices", "width", "count", "units", "components"
    for size in {*sizes} & {*problem._fields}:
        larger = problem._replace(**{size: getattr(problem, size) + 4})
        if size == "count":  # Of the learned routings; no array's size depends on it.
            continue
        refused(name, ValueError, "must", larger, groups)
    for size in {*sizes, "blocks", "types"} & {*problem._fields}:
        for wrong in (-4, 2.0, None):
            refused(name, ValueError, "must", problem._replace(**{size: wrong}), groups)


@every_kernel
def test_a_number_of_a_child_or_of_a_matrix_that_does_not_exist_is_refused(calls, refused, name):
    problem, groups = calls[name]
    for field in ("child", "matrix"):
        for wrong in (-1, 10**6):
            numbers = getattr(problem, field).copy()
            numbers.flat[-1] = wrong
            refused(
                name, ValueError, rf"{field} must be in \[0, ", problem._replace(**{field: numbers}), groups
            )
        short = getattr(problem, field).astype("int32")
        refused(
            name, TypeError, f"{field} must be an array of int64", problem._replace(**{field: short}), groups
        )
    short = problem._replace(addition=problem.addition[:-1])
    refused(name, ValueError, "addition must have the shape", short, groups)


def test_widths_of_networks_that_do_not_fit_the_cell_are_refused(calls, refused):
    problem, groups = calls["recurrent.forward_chunk"]
    for widths in ([8, 4], [4], [4, 6], [4, -4], [4, 0, 4]):
        wrong = problem._replace(compatibility=np.array(widths, "int64"))
        refused("recurrent.forward_chunk", ValueError, "multiples of four from 4 units on", wrong, groups)


def test_for_inputs_that_may_not_be_written_nothing_is_compiled_anew(calls, monkeypatch):
    kernel, (problem, (inputs, *_)) = kernels()["em_forward.forward_chunk"], calls["em_forward.forward_chunk"]
    locked, found = type(inputs)(*(part.view() for part in inputs)), []
    for part in locked:
        part.flags.writeable = False
    monkeypatch.setattr(kernel, "dispatcher", lambda *arguments: found.append(arguments))
    kernel.filled(problem, locked)
    for part, given in zip(found[0][1], locked, strict=True):
        assert part.flags.writeable
        assert np.shares_memory(part, given)
