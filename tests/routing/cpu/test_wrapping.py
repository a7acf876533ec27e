"""Compiled routing is used in this process however a model is wrapped, and never leaves it."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from capszoo.models import MatrixCapsNet
from capszoo.routing import cpu

IMAGES = np.zeros((4, 20, 20, 1), "float32")


@pytest.fixture(scope="module")
def model():
    small = MatrixCapsNet(channels=4, primary_types=2, conv1_types=2, conv2_types=2, num_iterations=1)
    return small.build((20, 20, 1), 2)


@pytest.fixture
def answers(monkeypatch):
    """What layers were told when they asked whether they may route by compiled code, outside of symbolic calls."""
    told, real = set(), cpu.enabled

    def enabled():
        told.add(real())
        return real()

    monkeypatch.setattr(cpu, "enabled", enabled)
    cpu._warn.cache_clear()
    return told


def scores(model):
    return keras.Model(model.input, model.output["scores"])


def in_time(model):
    layers = [keras.Input((3, 20, 20, 1)), keras.layers.TimeDistributed(scores(model))]
    return keras.Sequential(layers)


WRAPPED = {
    "as it is": lambda model: model,
    "keras.Model of one output": scores,
    "Sequential": lambda model: keras.Sequential([keras.Input((20, 20, 1)), scores(model)]),
    "clone_model": lambda model: keras.models.clone_model(scores(model)),
    "TimeDistributed": in_time,
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_wrapped_model_predicts_and_learns_by_compiled_routing(kind, model, answers):
    wrapped = WRAPPED[kind](model)
    images = np.stack([IMAGES] * 3, axis=1) if kind == "TimeDistributed" else IMAGES
    answers.clear()
    wrapped.predict(images, verbose=0)
    assert answers == {True}
    if kind != "as it is":
        wrapped.compile("sgd", loss="mse")
        answers.clear()
        wrapped.train_on_batch(images, np.zeros((4, 3, 2) if kind == "TimeDistributed" else (4, 2)))
        assert answers == {True}


def test_any_other_graph_routes_by_operations_and_one_warning_says_so(model, answers):
    wrapped = scores(model)
    answers.clear()
    with pytest.warns(UserWarning, match="routed by a graph here"):
        tf.function(wrapped)(IMAGES)
    assert answers == {False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf.function(wrapped)(IMAGES[:2])


def test_what_xla_compiles_routes_by_operations(model, answers):
    wrapped = scores(model)
    wrapped.compile("sgd", loss="mse", jit_compile=True)
    answers.clear()
    wrapped.predict_on_batch(IMAGES)
    assert answers == {False}
