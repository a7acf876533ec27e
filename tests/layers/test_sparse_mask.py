"""Latent capsules and their mask: support, ranks, boosts."""

import importlib.util
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import dynamic_routing, sparse_mask

from capszoo.layers import LatentCapsules, SparseMask
from capszoo.layers.sparse import routing_support
from capszoo.routing import DynamicRouting

GRID = (2, 3, 4)  # height, width, types
PAPER = [1, 0.449, 0.202, 0.091, 0.041, 0.018] + [0] * 10


@pytest.fixture
def rng():
    return np.random.default_rng(2018)


def shares(rng, images=5, children=24, parents=6):
    """Coefficients of children that divide themselves among parents."""
    logits = np.exp(rng.normal(size=(images, children, parents)))
    return (logits / logits.sum(axis=-1, keepdims=True)).astype("float32")


def oracle_mask(support, boosts=1.0, gamma=12.0):
    return sparse_mask.mask(sparse_mask.ranks(support, boosts), gamma)


# The oracle


def test_the_oracles_mask_of_16_capsules_is_the_papers():
    np.testing.assert_allclose(sparse_mask.mask(np.arange(16)), PAPER, atol=5e-4)


def test_the_oracle_boosts_by_hand():
    # Two images, three capsules: capsule 0 wins once, capsule 2 once, capsule 1 never.
    rank = np.array([[0, 1, 2], [2, 1, 0]])
    state = {"boosts": [1.0, 1.0, 1.05], "frequencies": [0.0, 0.0, 0.0], "batches": 0}
    first = sparse_mask.update(state, rank, every=2)
    np.testing.assert_allclose(first["frequencies"], [0.5, 0, 0.5])
    np.testing.assert_allclose(first["boosts"], state["boosts"])
    second = sparse_mask.update(first, np.array([[0, 1, 2], [0, 1, 2]]), every=2)
    np.testing.assert_allclose(second["frequencies"], [0.505, 0, 0.495])
    np.testing.assert_allclose(second["boosts"], [1.0, 1.1, 1.0])  # 1.05 - 0.1 is below one


# Support


def test_support_is_the_mean_over_positions_of_the_largest_coefficient_of_any_type(rng):
    coefficients = shares(rng)
    for rule in ("paper", "code"):
        expected = sparse_mask.routing_support(coefficients, GRID, rule) / (GRID[0] * GRID[1])
        np.testing.assert_allclose(routing_support(coefficients, GRID, rule), expected, rtol=1e-6)


def test_the_rules_of_paper_and_code_differ(rng):
    coefficients = shares(rng)
    paper, code = (routing_support(coefficients, GRID, rule) for rule in ("paper", "code"))
    assert np.abs(paper - code).max() > 0.01


@pytest.mark.parametrize("rule", ["paper", "code"])
def test_latent_capsules_are_dense_capsules_with_the_support_of_the_last_iteration(rng, rule):
    layer = LatentCapsules(6, 5, DynamicRouting(3), rule)
    children = rng.normal(size=(2, *GRID, 3)).astype("float32")
    (poses, support), history = layer(children, return_history=True)
    routed = dynamic_routing.dynamic_routing(layer.votes(children), 3, bias=layer.routing.bias)
    np.testing.assert_allclose(poses, routed["poses"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(history[-1], routed["coefficients"][-1], rtol=1e-4)
    expected = sparse_mask.routing_support(routed["coefficients"][-1], GRID, rule) / 6
    np.testing.assert_allclose(support, expected, rtol=1e-4)
    for part, other in zip(layer(children), (poses, support), strict=True):
        np.testing.assert_allclose(part, other, rtol=1e-4, atol=1e-6)


# Mask


def test_a_mask_of_16_capsules_is_the_papers(rng):
    support = rng.permutation(16).astype("float32")[None]
    mask = np.asarray(SparseMask()(support))[0]
    np.testing.assert_allclose(mask[np.argsort(-support[0])], PAPER, atol=5e-4)
    assert np.count_nonzero(mask) == 6


@pytest.mark.parametrize("gamma", [0.5, 5.0, 12.0, 60.0])
def test_the_mask_agrees_with_the_oracle(rng, gamma):
    support = rng.uniform(size=(7, 9)).astype("float32")
    mask = SparseMask(gamma)(support)
    np.testing.assert_allclose(mask, oracle_mask(support, gamma=gamma), rtol=1e-6)


def test_each_image_is_masked_by_its_own_ranks(rng):
    support = rng.uniform(size=(8, 6)).astype("float32")
    layer = SparseMask()
    together = np.asarray(layer(support))
    assert len(np.unique(together, axis=0)) > 1
    for row, alone in zip(together, support, strict=True):
        np.testing.assert_array_equal(layer(alone[None])[0], row)


def test_boosts_multiply_the_support_that_is_ranked(rng):
    support, boosts = rng.uniform(size=(7, 6)).astype("float32"), np.float32([1, 1.4, 1, 2.5, 1.1, 1])
    layer = SparseMask()
    layer.build(support.shape)
    layer.boosts.assign(boosts)
    np.testing.assert_array_equal(layer.ranks(support), sparse_mask.ranks(support, boosts))
    np.testing.assert_allclose(layer(support), oracle_mask(support, boosts), rtol=1e-6)
    assert not np.array_equal(sparse_mask.ranks(support, boosts), sparse_mask.ranks(support, 1.0))


def test_of_equal_supports_the_lower_index_comes_first():
    support = np.float32([[0.3, 0.5, 0.3, 0.3], [0.2, 0.2, 0.2, 0.2]])
    expected = np.exp(-12 / 3 * np.array([[1, 0, 2, 3], [0, 1, 2, 3]]))
    np.testing.assert_allclose(SparseMask()(support), np.where(expected < 0.01, 0, expected), rtol=1e-6)


def test_no_gradient_passes_the_mask(rng):
    support = tf.constant(rng.uniform(size=(3, 6)).astype("float32"))
    with tf.GradientTape() as tape:
        tape.watch(support)
        mask = SparseMask()(support)
    assert tape.gradient(mask, support) is None


def test_without_sparsity_all_capsules_pass_and_nothing_is_counted(rng):
    layer = SparseMask(gamma=0.0)
    support = rng.uniform(size=(3, 6)).astype("float32")
    np.testing.assert_array_equal(layer(support, training=True), np.ones((3, 6)))
    assert layer.weights == []


# Boosting


def state_of(layer):
    names = ("boosts", "frequencies", "batches")
    return {name: keras.ops.convert_to_numpy(getattr(layer, name)) for name in names}


def test_the_state_agrees_with_the_oracle_over_many_batches(rng):
    bounds, decay = (0.1, 0.25), 0.9
    layer = SparseMask(frequencies=bounds, boost_step=0.2, boost_every=4, decay=decay)
    layer.build((None, 6))
    state = state_of(layer)
    slope = np.linspace(1.0, 0.4, 6)  # the first capsules have more support than the last
    trained = tf.function(lambda support: layer(support, training=True), autograph=False)
    for _ in range(30):
        support = (slope * rng.uniform(0.5, 1, size=(8, 6))).astype("float32")
        mask = trained(support)
        rank = sparse_mask.ranks(support, np.float32(state["boosts"]))
        np.testing.assert_allclose(mask, sparse_mask.mask(rank), rtol=1e-6)
        state = sparse_mask.update(state, rank, bounds, decay, step=0.2, every=4)
        for name, value in state_of(layer).items():
            np.testing.assert_allclose(value, state[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert state["boosts"].max() > 1.5


def test_boosting_raises_capsules_that_win_too_seldom_and_lowers_those_that_win_too_often():
    layer = SparseMask(frequencies=(0.2, 0.4), boost_every=1)
    layer.build((None, 4))
    layer.boosts.assign([1.5, 1.0, 1.0, 1.05])
    layer.batches.assign(7)
    layer.frequencies.assign([0.6, 0.3, 0.1, 0.5])
    support = np.float32(
        [[0.1, 0.2, 0.1, 0.1]]
    )  # capsule 1 wins: 0.3 becomes 0.307, no other crosses a bound
    layer(support, training=True)
    np.testing.assert_allclose(layer.boosts, [1.4, 1.0, 1.1, 1.0])


def test_boosts_let_every_capsule_win_in_the_end(rng):
    layer = SparseMask(frequencies=(0.15, 0.35), boost_every=2, decay=0.8)
    slope = np.float32([1, 0.9, 0.8, 0.7])

    def winners():
        rank = np.asarray(layer.ranks((slope * rng.uniform(0.9, 1, size=(400, 4))).astype("float32")))
        return (rank == 0).mean(axis=0)

    layer.build((None, 4))
    assert winners().min() == 0
    trained = tf.function(lambda support: layer(support, training=True), autograph=False)
    for _ in range(150):
        trained((slope * rng.uniform(0.9, 1, size=(32, 4))).astype("float32"))
    assert winners().min() > 0.01


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_jax_counts_and_boosts_in_a_compiled_step(rng):
    support = rng.uniform(size=(8, 4)).astype("float32")
    expected = SparseMask(boost_every=1)
    expected(support, training=True)
    code = f"""
import jax, json
import numpy as np
from capszoo.layers.sparse import SparseMask
layer = SparseMask(boost_every=1)
layer.build((None, 4))
step = jax.jit(lambda state, support: layer.stateless_call([], state, support, training=True)[1])
state = step([variable.value for variable in layer.non_trainable_variables], np.float32({support.tolist()}))
print(json.dumps([np.asarray(value).tolist() for value in state]))
"""
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for value, other in zip(json.loads(done.stdout), state_of(expected).values(), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": -1.0}, r"gamma must be at least 0\. Received: -1"),
        ({"boost_step": -0.1}, r"boost_step must be at least 0\. Received: -0\.1"),
        ({"frequencies": (0.2, 0.1)}, r"ascending in \[0, 1\]\. Received: \(0\.2, 0\.1\)"),
        ({"frequencies": (0.2, 1.1)}, "ascending"),
        ({"boost_every": 0}, r"boost_every must be at least 1\. Received: 0"),
        ({"decay": 1.1}, r"decay must be in \[0, 1\]\. Received: 1\.1"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SparseMask(**arguments)


def test_a_part_of_a_batch_is_not_counted(monkeypatch):
    """Each replica would count its own images, and only what the first has counted be kept."""
    layer, support = SparseMask(), np.eye(4, dtype="float32")
    layer(support, training=True)
    before = state_of(layer)
    replicas = SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(tf.distribute, "get_replica_context", lambda: replicas)
    with pytest.raises(ValueError, match=r"counts which capsules win in a whole batch.*Received: 2 replicas"):
        layer(support, training=True)
    layer(support)
    for name, value in state_of(layer).items():
        np.testing.assert_array_equal(value, before[name])


def test_one_capsule_has_no_rank():
    with pytest.raises(ValueError, match=r"at least two capsules are needed\. Received: 1"):
        SparseMask()(np.zeros((2, 1), "float32"))


def test_children_off_a_grid_and_unknown_rules_are_refused():
    with pytest.raises(ValueError, match=r"children must be \[B, H, W, types, D\]"):
        LatentCapsules(4, 3, DynamicRouting())(np.zeros((1, 6, 3), "float32"))
    with pytest.raises(ValueError, match=r"'paper' or 'code'\. Received: 'both'"):
        LatentCapsules(4, 3, DynamicRouting(), "both")
