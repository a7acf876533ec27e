"""EM routing on grids, beyond what every routing obeys (`conformance/test_routing.py`)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import em_routing as oracle
from routed import DENSE_MASS_FLOOR, MASS_FLOOR, VARIANCE_FLOOR
from support import arrays, traced

from capszoo.routing import EMRouting, Neighbourhood

pytestmark = pytest.mark.usefixtures("eagerly")

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
GRIDS = [(3, 1, (5, 5)), (3, 2, (7, 6)), (2, 2, (5, 4)), (2, 3, (5, 6)), (1, 1, (3, 2)), (3, 1, (3, 3))]
every_grid = pytest.mark.parametrize(("kernel_size", "strides", "child_grid"), GRIDS)
every_variant = pytest.mark.parametrize("variant", ["paper", "official"])
BETAS = {"beta_u": np.array([0.1, -0.2, 0.3]), "beta_a": np.array([-0.3, 0.1, 0.0004])}
TYPES, PARENTS, DEPTH = 2, 3, 4


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def on_grid(kernel_size, strides, child_grid, images=2, seed=0):
    """A neighbourhood, votes `[B, H', W', K, K, types, O, D]` and activations `[B, H, W, types]`."""
    place = Neighbourhood(kernel_size, strides, child_grid)
    taps = (kernel_size, kernel_size)
    votes = numbers(images, *place.parent_grid, *taps, TYPES, PARENTS, DEPTH, seed=seed)
    activations = np.random.default_rng(seed + 1).uniform(0.05, 1, size=(images, *child_grid, TYPES))
    return place, votes, activations


def made(place, **options):
    """EM routing in the neighbourhood `place` (None: every child sees every parent), with known betas."""
    layer = EMRouting(**options)
    layer.neighbourhood = place
    children, grid = (6, ()) if place is None else (place.taps * TYPES, place.parent_grid)
    layer.build((None, *grid, children, PARENTS, DEPTH))
    if layer.activation == "logistic":
        layer.beta_u.assign(BETAS["beta_u"])
        layer.beta_a.assign(BETAS["beta_a"])
    return layer


def flat(votes):
    """`[B, H', W', K, K, types, O, D]` -> `[B, H', W', I, O, D]`."""
    return votes.reshape(*votes.shape[:3], -1, *votes.shape[-2:])


def seen(place, activations):
    """What each parent sees of activations `[B, H, W, types]`: `[B, H', W', I]`."""
    windows = arrays(place.unfold(np.moveaxis(activations, -1, 1)))[0]
    # [taps, B, types, H', W'] -> [B, H', W', taps, types]
    windows = windows.transpose(1, 3, 4, 0, 2)
    return windows.reshape(*windows.shape[:3], -1)


def of_oracle(place, votes, activations, variant, count=3, final_lambda=0.01, **betas):
    return oracle.em_routing(
        votes,
        activations,
        **{**BETAS, **betas},
        num_iterations=count,
        stride=place.strides,
        variant=variant,
        final_lambda=final_lambda,
        normalise="positions" if variant == "official" else None,
        variance_floor=VARIANCE_FLOOR,
        mass_floor=MASS_FLOOR,
    )


def per_child(place, coefficients):
    """Each child's coefficients summed over its parents, and how many parent positions it has.

    `[B, H', W', I, O]` -> `[B, H, W, types, O]`, `[H, W]`; by the definition of a window.
    """
    images, size = len(coefficients), place.kernel_size
    coefficients = coefficients.reshape(images, *place.parent_grid, size, size, TYPES, PARENTS)
    sums = np.zeros((images, *place.child_grid, TYPES, PARENTS))
    count = np.zeros(place.child_grid)
    for h, w in np.ndindex(*place.parent_grid):
        for ky, kx in np.ndindex(size, size):
            sums[:, place.strides * h + ky, place.strides * w + kx] += coefficients[:, h, w, ky, kx]
            count[place.strides * h + ky, place.strides * w + kx] += 1
    return sums, count


# Values and gradients


def assert_agrees_with_the_oracle(place, votes, activations, count, variant, dtype, **tolerance):
    options = {"variant": variant, "final_lambda": 0.2 if variant == "paper" else 0.01}
    layer = made(place, num_iterations=count, dtype=dtype, **options)
    inputs = flat(votes).astype(dtype), seen(place, activations).astype(dtype)
    poses, parents, history = layer(*inputs, return_history=True)
    expected = of_oracle(place, votes, activations, count=count, **options)
    np.testing.assert_allclose(poses, expected["poses"], **tolerance)
    np.testing.assert_allclose(parents, expected["activations"], **tolerance)
    for coefficients, other in zip(history, expected["coefficients"], strict=True):
        np.testing.assert_allclose(coefficients, other.reshape(coefficients.shape), **tolerance)


@every_variant
@every_grid
@pytest.mark.parametrize("count", [1, 3])
def test_on_a_grid_it_agrees_with_the_oracle(kernel_size, strides, child_grid, count, variant):
    problem = on_grid(kernel_size, strides, child_grid)
    assert_agrees_with_the_oracle(*problem, count, variant, "float64", rtol=1e-6, atol=1e-9)


@every_variant
@pytest.mark.parametrize("strides", [1, 2])
def test_float32_is_enough_for_it(strides, variant):
    problem = on_grid(3, strides, (7, 6))
    assert_agrees_with_the_oracle(*problem, 5, variant, "float32", **CLOSE)


@every_variant
@pytest.mark.parametrize("strides", [1, 2])
def test_on_a_grid_its_gradients_are_the_slopes_of_the_oracle(strides, variant):
    place, votes, activations = on_grid(3, strides, (5, 4), images=1)
    options = {"variant": variant, "final_lambda": 0.2 if variant == "paper" else 0.01}
    layer = made(place, dtype="float64", **options)
    of_poses = numbers(1, *place.parent_grid, PARENTS, DEPTH, seed=5)
    of_parents = numbers(1, *place.parent_grid, PARENTS, seed=6)
    points = {"votes": votes, "activations": activations, **BETAS}

    def slope(name, direction, step=1e-6):
        total = []
        for sign in (1, -1):
            moved = {**points, name: points[name] + sign * step * direction}
            result = of_oracle(place, **moved, **options)
            total.append(np.sum(of_poses * result["poses"]) + np.sum(of_parents * result["activations"]))
        return (total[0] - total[1]) / (2 * step)

    inputs = tf.constant(flat(votes)), tf.constant(seen(place, activations))
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        poses, parents = layer(*inputs)
        value = tf.reduce_sum(of_poses * poses) + tf.reduce_sum(of_parents * parents)
    found = arrays(tape.gradient(value, [*inputs, layer.beta_u, layer.beta_a]))
    found[0] = found[0].reshape(votes.shape)
    # A child votes for several parents; its slope is the sum of what flows back from all of them.
    found[1] = per_child(place, np.repeat(found[1][..., None], PARENTS, axis=-1))[0][..., 0]
    for name, gradient in zip(points, found, strict=True):
        for seed in range(4):
            direction = numbers(*points[name].shape, seed=10 + seed)
            expected = slope(name, direction)
            np.testing.assert_allclose(
                np.sum(gradient * direction), expected, rtol=1e-4, atol=1e-6, err_msg=name
            )


# Coefficients


@every_grid
@pytest.mark.parametrize("activation", ["logistic", "mixing"])
def test_each_childs_coefficients_sum_to_one_over_all_its_parents(
    kernel_size, strides, child_grid, activation
):
    place, votes, activations = on_grid(kernel_size, strides, child_grid)
    _, _, history = made(place, activation=activation)(
        flat(votes), seen(place, activations), return_history=True
    )
    for coefficients in np.asarray(history):
        sums, count = per_child(place, coefficients)
        np.testing.assert_allclose(sums.sum(axis=-1)[:, count > 0], 1, rtol=2e-5)
        np.testing.assert_array_equal(sums[:, count == 0], 0)


def test_at_first_a_child_gives_each_of_its_parents_the_same():
    place, votes, activations = on_grid(3, 2, (7, 6))
    _, _, history = made(place, num_iterations=1)(flat(votes), seen(place, activations), return_history=True)
    sums, count = per_child(place, np.asarray(history)[0])
    np.testing.assert_allclose(sums[:, count > 0], 1 / PARENTS, rtol=1e-6)
    at_corner = np.asarray(history)[0, :, 0, 0, 0]
    np.testing.assert_allclose(at_corner, 1 / PARENTS, rtol=1e-6)


@every_grid
def test_in_the_authors_code_each_type_of_parent_gets_a_whole_child(kernel_size, strides, child_grid):
    place, votes, activations = on_grid(kernel_size, strides, child_grid)
    _, _, history = made(place, variant="official")(
        0.02 * flat(votes), seen(place, activations), return_history=True
    )
    for coefficients in np.asarray(history)[1:]:
        sums, count = per_child(place, coefficients)
        # Votes are alike: of a child far from all its parents the floor 1e-7 would take a part.
        np.testing.assert_allclose(sums[:, count > 0], 1, rtol=1e-3)


@pytest.mark.parametrize(("kernel_size", "strides"), [(3, 1), (3, 2)])
def test_the_e_step_is_a_softmax_over_all_parents_of_a_child(kernel_size, strides):
    place, votes, _ = on_grid(kernel_size, strides, (5, 5))
    weights = 10 * votes[..., 0]
    layer = made(place)
    # [B, H', W', I, O] -> [I, O, B * H' * W']
    by_child = weights.reshape(*weights.shape[:3], -1, PARENTS)
    flattened = np.moveaxis(by_child, (-2, -1), (0, 1)).reshape(place.taps * TYPES, PARENTS, -1)
    computed = np.asarray(layer._normalise(flattened.astype("float32")))
    computed = np.moveaxis(
        computed.reshape(by_child.shape[3], PARENTS, *by_child.shape[:3]), (0, 1), (-2, -1)
    )
    parents = oracle.parents_of_children((5, 5), place.parent_grid, kernel_size, strides)
    expected = oracle.e_step_brute_force(weights, parents)
    np.testing.assert_allclose(computed.reshape(expected.shape), expected, rtol=1e-4, atol=1e-7)


def test_parents_at_different_positions_compete_for_a_child():
    # One row of three children, two parents: the middle child votes for both, with the pose of the right one.
    place = Neighbourhood(1, 1, (1, 1))
    assert place.parent_grid == (1, 1)
    place = Neighbourhood(2, 1, (2, 3))
    layer = EMRouting(2)
    layer.neighbourhood = place
    layer.build((None, 1, 2, 4, 1, 1))
    # Votes by parent and tap; taps 1 and 3 of the left parent are taps 0 and 2 of the right one.
    votes = np.array([[0, 5, 0, -5], [1, 1, 1, 1]], "float32").reshape(1, 1, 2, 4, 1, 1)
    _, _, history = layer(votes, np.ones((1, 1, 2, 4), "float32"), return_history=True)
    left, right = np.asarray(history)[1, 0, 0, :, :, 0]
    assert left[1] < 0.01
    assert right[0] > 0.99
    np.testing.assert_allclose(left[[1, 3]] + right[[0, 2]], 1, rtol=1e-6)
    np.testing.assert_allclose(left[[0, 2]], 1, rtol=1e-6)


# Neighbourhood


@every_grid
def test_a_neighbourhood_knows_every_parent_of_every_child(kernel_size, strides, child_grid):
    place = Neighbourhood(kernel_size, strides, child_grid)
    parents = oracle.parents_of_children(child_grid, place.parent_grid, kernel_size, strides)
    numbered = np.arange(np.prod(child_grid), dtype="float32").reshape(1, *child_grid)
    windows = np.asarray(place.unfold(numbered))
    returned = np.asarray(place.fold(windows, -1.0))
    for (y, x), found in parents.items():
        assert place.num_parents()[y, x] == len(found)
        for (h, w), (ky, kx) in found:
            assert windows[ky * kernel_size + kx, 0, h, w] == numbered[0, y, x]
        through = sorted(ky * kernel_size + kx for _, (ky, kx) in found)
        assert list(np.flatnonzero(returned[:, 0, y, x] == numbered[0, y, x])) == through
        assert np.sum(returned[:, 0, y, x] == -1) == place.taps - len(found)


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        ((0, 1, (3, 3)), r"at least 1\. Received: 0, 1"),
        ((3, 0, (3, 3)), r"at least 1\. Received: 3, 0"),
        ((3, 1, (2, 5)), r"at least 3x3 children is needed\. Received: \(2, 5\)"),
    ],
)
def test_an_impossible_neighbourhood_is_refused(geometry, message):
    with pytest.raises(ValueError, match=message):
        Neighbourhood(*geometry)


# Temperature and activations


def test_the_inverse_temperature_follows_the_authors_schedule():
    # With beta_a = 1 and beta_u = -log(var) / 2 the argument of the logistic function is lambda_t itself.
    for iteration, expected in enumerate((0.0005, 0.000975, 0.00142625)):
        layer = made(None)
        layer.beta_u.assign(np.zeros(PARENTS))
        layer.beta_a.assign(np.ones(PARENTS))
        logits = layer._logits(
            np.ones((PARENTS, 1), "float32"),
            np.ones((PARENTS, DEPTH, 1), "float32"),
            layer.betas(),
            iteration,
        )
        np.testing.assert_allclose(logits, expected, rtol=1e-5)


@pytest.mark.parametrize("in_place", [False, True])
def test_the_authors_code_quarters_the_inverse_temperature_of_class_capsules(in_place):
    layer = made(Neighbourhood(1, 1, (2, 2)) if in_place else None, variant="official")
    layer.beta_a.assign(np.ones(PARENTS))
    logits = layer._logits(
        np.zeros((PARENTS, 1), "float32"), np.ones((PARENTS, DEPTH, 1), "float32"), layer.betas(), 2
    )
    np.testing.assert_allclose(logits, -5000 * 0.00142625 / (1 if in_place else 4), rtol=1e-5)


@every_variant
def test_class_capsules_agree_with_the_oracle(variant):
    votes, activations = numbers(2, 6, PARENTS, DEPTH), np.random.default_rng(1).uniform(size=(2, 6))
    poses, parents = made(None, variant=variant)(votes, activations)
    expected = oracle.em_routing_dense(
        votes,
        activations,
        **BETAS,
        variant=variant,
        variance_floor=VARIANCE_FLOOR,
        mass_floor=DENSE_MASS_FLOOR,
    )
    np.testing.assert_allclose(poses, expected["poses"], **CLOSE)
    np.testing.assert_allclose(parents, expected["activations"], **CLOSE)


def test_mixing_proportions_are_each_parents_share_of_all_data_in_the_layer():
    place, votes, activations = on_grid(3, 2, (7, 6))
    layer = made(place, activation="mixing")
    children = seen(place, activations)
    _, parents, history = layer(flat(votes), children, return_history=True)
    assert not layer.weights
    data = np.sum(np.asarray(history)[-1] * children[..., None], axis=-2)
    np.testing.assert_allclose(parents, data / data.sum(axis=(1, 2, 3), keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(np.sum(parents, axis=(1, 2, 3)), 1, rtol=1e-5)


def test_mixing_proportions_of_classes_sum_to_one_in_every_image():
    votes, activations = numbers(4, 6, PARENTS, DEPTH), np.random.default_rng(1).uniform(size=(4, 6))
    _, parents = made(None, activation="mixing")(votes, activations)
    np.testing.assert_allclose(np.sum(parents, axis=-1), 1, rtol=1e-5)


def test_a_tight_cluster_is_active_and_a_scattered_one_is_not():
    votes = numbers(1, 8, PARENTS, DEPTH)
    votes[:, :, 0] = 0.01 * votes[:, :, 0] + 1
    layer = made(None, num_iterations=1, final_lambda=10.0)
    layer.beta_u.assign(np.ones(PARENTS))
    _, parents = layer(votes, np.ones((1, 8)))
    assert parents[0, 0] > 0.9
    assert max(parents[0, 1:]) < 0.1


# Symmetries


@every_variant
def test_reordered_types_of_children_and_parents_come_out_reordered(variant):
    place, votes, activations = on_grid(3, 2, (7, 6))
    layer = made(place, variant=variant)
    poses, parents, history = arrays(layer(flat(votes), seen(place, activations), return_history=True))
    order = [2, 0, 1]
    layer.beta_u.assign(BETAS["beta_u"][order])
    layer.beta_a.assign(BETAS["beta_a"][order])
    votes, activations = votes[..., ::-1, :, :][..., order, :], activations[..., ::-1]
    moved_poses, moved_parents, moved_history = layer(
        flat(votes), seen(place, activations), return_history=True
    )
    np.testing.assert_allclose(moved_poses, poses[..., order, :], **CLOSE)
    np.testing.assert_allclose(moved_parents, parents[..., order], **CLOSE)
    by_type = history.reshape(*history.shape[:4], place.taps, TYPES, PARENTS)[..., ::-1, :][..., order]
    np.testing.assert_allclose(moved_history, by_type.reshape(history.shape), **CLOSE)


def test_what_one_image_votes_does_not_reach_another():
    place, votes, activations = on_grid(3, 2, (7, 6))
    together, *_ = made(place)(flat(votes), seen(place, activations))
    alone, *_ = made(place)(flat(votes[1:]), seen(place, activations[1:]))
    np.testing.assert_allclose(alone[0], together[1], rtol=1e-5, atol=1e-6)


def test_votes_with_positions_last_are_routed_the_same():
    place, votes, activations = on_grid(3, 2, (7, 6))
    votes, activations = flat(votes), seen(place, activations)
    layer = made(place)
    poses, parents, history = arrays(layer(votes, activations, return_history=True))
    results = layer(
        np.moveaxis(votes, (-3, -2, -1), (0, 1, 2)),
        np.moveaxis(activations, -1, 0),
        return_history=True,
        positions_last=True,
    )
    np.testing.assert_array_equal(results[0], np.moveaxis(poses, (-2, -1), (0, 1)))
    np.testing.assert_array_equal(results[1], np.moveaxis(parents, -1, 0))
    np.testing.assert_array_equal(results[2], np.moveaxis(history, (-2, -1), (1, 2)))


# Bad places


def gradients(layer, votes, activations):
    inputs = tf.constant(votes, "float32"), tf.constant(activations, "float32")
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(*inputs)
    return arrays(outputs) + arrays(tape.gradient(outputs, [*inputs, *layer.trainable_weights]))


HARD = {
    "zero poses": lambda votes, activations: (0 * votes, activations),
    "zero activations": lambda votes, activations: (votes, 0 * activations),
    "zero poses and activations": lambda votes, activations: (0 * votes, 0 * activations),
    "one active child": lambda votes, activations: (
        votes,
        activations * (np.arange(activations.size) == 7).reshape(activations.shape),
    ),
    "tiny variances": lambda votes, activations: (1e-5 * votes + 3, activations),
    "huge votes": lambda votes, activations: (1e4 * votes, activations),
    "tiny activations": lambda votes, activations: (votes, 1e-12 * activations),
}


@pytest.mark.parametrize(
    "options", [{}, {"variant": "official"}, {"activation": "mixing"}], ids=["paper", "official", "mixing"]
)
def test_three_iterations_in_hard_places_have_finite_values_and_gradients(options):
    place, votes, activations = on_grid(3, 2, (7, 6))
    layer = made(place, **options)
    for name, change in HARD.items():
        hard_votes, hard_activations = change(votes, activations)
        for array in gradients(layer, flat(hard_votes), seen(place, hard_activations)):
            assert np.all(np.isfinite(array)), name


def test_the_gradient_at_a_logit_of_zero_is_not_lost():
    # One child, one class, variance at its floor: x = 0 exactly where beta_a and beta_u cancel.
    layer = EMRouting(2)
    layer.build((None, 4, 2, 1))
    layer.beta_u.assign([0.0, 0.0])
    layer.beta_a.assign([0.0, 0.0])
    state = {"logits": tf.zeros((2, 1))}
    with tf.GradientTape() as tape:
        tape.watch(state["logits"])
        value = layer._log_activations(state["logits"])
    np.testing.assert_allclose(tape.gradient(value, state["logits"]), 0.5)


# However it is run


@pytest.mark.rewritten
@every_variant
@pytest.mark.parametrize(
    "how",
    # A loop over a count that is a tensor is the same in any graph, and harder for XLA.
    [
        "graph",
        "xla",
        *(pytest.param(how, marks=pytest.mark.slow) for how in ("tensor", "tensor in graph")),
        "tensor in xla",
    ],
)
def test_on_a_grid_it_says_the_same_however_it_is_run(how, variant):
    place, votes, activations = on_grid(3, 2, (7, 6))
    layer = made(place, variant=variant)
    inputs = flat(votes).astype("float32"), seen(place, activations).astype("float32")
    expected = layer(*inputs)
    count = tf.constant(3) if how.startswith("tensor") else 3
    route = lambda *inputs: layer(*inputs, num_iterations=count)  # noqa: E731
    if how != "tensor":
        route = tf.function(route, autograph=False, jit_compile=how.endswith("xla"))
    for array, other in zip(arrays(route(*inputs)), expected, strict=True):
        np.testing.assert_allclose(array, other, **CLOSE)


def test_a_batch_of_unknown_size_is_one_trace():
    place, votes, activations = on_grid(3, 2, (7, 6), images=3)
    layer, traces = made(place), []

    @tf.function(autograph=False)
    def route(votes, activations):
        traces.append(votes.shape)
        return layer(votes, activations)

    inputs = flat(votes).astype("float32"), seen(place, activations).astype("float32")
    specs = [tf.TensorSpec((None, *array.shape[1:])) for array in inputs]
    served = route.get_concrete_function(*specs)
    for size in (1, 2, 3):
        poses, _ = served(*(tf.constant(array[:size]) for array in inputs))
        np.testing.assert_allclose(poses, layer(*inputs)[0][:size], **CLOSE)
    assert len(traces) == 1


def test_votes_are_never_transposed_when_positions_come_last():
    place, votes, activations = on_grid(3, 2, (7, 6))
    layer = made(place)
    votes = np.moveaxis(flat(votes).astype("float32"), (-3, -2, -1), (0, 1, 2))
    activations = np.moveaxis(seen(place, activations).astype("float32"), -1, 0)
    top, inside = traced(lambda *inputs: layer(*inputs, positions_last=True), votes, activations)
    assert top["Transpose"] + inside["Transpose"] == 0


JAX = """
import sys
import numpy as np
import jax
from capszoo.routing import EMRouting, Neighbourhood
given = np.load(sys.argv[1])
place = Neighbourhood(3, 2, (7, 6))
values = {}
for variant in ("paper", "official"):
    layer = EMRouting(variant=variant)
    layer.neighbourhood = place
    layer.build((None, *given["votes"].shape[1:]))
    layer.set_weights([given["beta_u"], given["beta_a"]])
    for count in (3, jax.numpy.asarray(3)):
        route = jax.jit(lambda votes, activations: layer(votes, activations, num_iterations=count))
        name = variant if isinstance(count, int) else variant + "_tensor"
        values[name + "_poses"], values[name + "_activations"] = route(given["votes"], given["activations"])
assert "tensorflow" not in sys.modules
np.savez(sys.argv[2], **values)
"""


@pytest.mark.slow
def test_jax_computes_the_same(tmp_path):
    pytest.importorskip("jax")
    place, votes, activations = on_grid(3, 2, (7, 6))
    inputs = flat(votes).astype("float32"), seen(place, activations).astype("float32")
    np.savez(tmp_path / "given.npz", votes=inputs[0], activations=inputs[1], **BETAS)
    search = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", JAX, str(tmp_path / "given.npz"), str(tmp_path / "jax.npz")],
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    computed = np.load(tmp_path / "jax.npz")
    for variant in ("paper", "official"):
        poses, parents = made(place, variant=variant)(*inputs)
        for name in (variant, f"{variant}_tensor"):
            np.testing.assert_allclose(computed[f"{name}_poses"], poses, **CLOSE)
            np.testing.assert_allclose(computed[f"{name}_activations"], parents, **CLOSE)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_on_a_grid_it_computes_half_precision_votes_in_float32(dtype):
    place, votes, activations = on_grid(3, 2, (7, 6))
    layer = made(place)
    half, children = tf.cast(flat(votes), dtype), tf.cast(seen(place, activations), "float32")
    poses, parents = layer(half, children)
    assert poses.dtype == parents.dtype == "float32"
    np.testing.assert_array_equal(poses, layer(tf.cast(half, "float32"), children)[0])


# Options and errors


def test_its_configuration_holds_every_option():
    options = {
        "num_iterations": 2,
        "variant": "official",
        "activation": "mixing",
        "final_lambda": 0.5,
        "beta_u": 0.25,
        "beta_a": -1.0,
    }
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(EMRouting(**options))))
    again = keras.saving.deserialize_keras_object(config, safe_mode=True).get_config()
    assert {name: again[name] for name in options} == options


def test_betas_begin_at_their_given_values():
    layer = EMRouting(beta_u=2.0, beta_a=1.0)
    layer.build((None, 6, PARENTS, DEPTH))
    np.testing.assert_array_equal(layer.beta_u, np.full(PARENTS, 2.0))
    np.testing.assert_array_equal(layer.beta_a, np.full(PARENTS, 1.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "ibm"}, "variant must be 'paper' or 'official'. Received: 'ibm'"),
        ({"activation": "softmax"}, "activation must be 'logistic' or 'mixing'. Received: 'softmax'"),
        ({"final_lambda": 0.0}, r"final_lambda must be positive\. Received: 0\.0"),
        ({"num_iterations": 0}, r"num_iterations must be an int of at least 1\. Received: 0"),
    ],
)
def test_a_wrong_option_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EMRouting(**options)


def test_votes_without_activations_are_refused():
    with pytest.raises(ValueError, match=r"needs the children's activations\. Received: None"):
        made(None)(numbers(2, 6, PARENTS, DEPTH))


@pytest.mark.parametrize("shape", [(None, 3, 2, 5, 3, 4), (None, 2, 3, 9, 3, 4), (None, 18, 3, 4)])
def test_votes_of_another_neighbourhood_are_refused(shape):
    layer = EMRouting()
    layer.neighbourhood = Neighbourhood(3, 2, (7, 6))
    with pytest.raises(
        ValueError, match=r"votes of the grid \(3, 2\) and a multiple of 9 children are needed"
    ):
        layer.build(shape)
