"""Sets have no order; capsules look where they want to."""

import keras
import numpy as np
import pytest
from support import fill

from capszoo.layers import AttentionPooling, InducedSetAttention, Named, SeedPooling, SetAttention

ORDER = [3, 0, 4, 1, 2]


@pytest.fixture
def elements():
    return np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")


def made(layer, *inputs):
    layer(*inputs)
    return fill(layer)


@pytest.mark.parametrize("create", [lambda: InducedSetAttention(8, 2, 3), lambda: SetAttention(8, 2)])
def test_attention_follows_the_order_of_those_who_look(create, elements):
    layer = create()
    seen = [elements] if isinstance(layer, SetAttention) else []
    made(layer, elements, *seen)
    expected = np.asarray(layer(elements, *seen))
    np.testing.assert_allclose(layer(elements[:, ORDER], *seen), expected[:, ORDER], rtol=1e-4, atol=1e-5)


def test_it_does_not_depend_on_the_order_of_what_is_seen(elements):
    layer = made(SetAttention(8, 2), elements, elements)
    np.testing.assert_allclose(
        layer(elements, elements[:, ORDER]), layer(elements, elements), rtol=1e-4, atol=1e-5
    )


def test_a_set_is_pooled_whatever_its_order(elements):
    layer = made(SeedPooling(4, 8, 2), elements)
    np.testing.assert_allclose(layer(elements[:, ORDER]), layer(elements), rtol=1e-4, atol=1e-5)


def test_names_tell_elements_apart(elements):
    names, pool = made(Named(), elements), made(SeedPooling(4, 8, 2), elements)
    difference = np.asarray(pool(names(elements[:, ORDER]))) - np.asarray(pool(names(elements)))
    assert np.abs(difference).max() > 0.01


def test_attention_is_that_of_the_formula(elements):
    layer = made(SetAttention(8, 2), elements, elements)
    w = {weight.path.partition("/")[2]: np.asarray(weight, "float64") for weight in layer.weights}
    x = elements.astype("float64")[0]

    def norm(values, i):
        centred = values - values.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(values.var(-1, keepdims=True) + 1e-3)
        return w[f"norm{i}/gamma"] * scaled + w[f"norm{i}/beta"]

    q = x @ w["queries/kernel"] + w["queries/bias"]
    k, v = x @ w["keys/kernel"], x @ w["values/kernel"] + w["values/bias"]
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        agreement = np.exp(q[:, part] @ k[:, part].T / np.sqrt(8))
        heads.append(agreement / agreement.sum(-1, keepdims=True) @ v[:, part])
    h = norm(q + np.concatenate(heads, -1), 1)
    expected = norm(h + np.maximum(0, h @ w["output/kernel"] + w["output/bias"]), 2)
    np.testing.assert_allclose(layer(elements, elements)[0], expected, rtol=1e-3, atol=1e-4)


def test_heads_that_do_not_divide_units_are_refused():
    with pytest.raises(ValueError, match=r"heads must divide units, 8\. Received: 3"):
        SetAttention(8, 3)


def test_pooled_numbers_are_means_weighted_by_attention():
    features = np.random.default_rng(1).normal(size=(1, 3, 4, 5)).astype("float32")
    layer = made(AttentionPooling(2, 3), features)
    places, kernel, attention, bias = (np.asarray(weight, "float64") for weight in layer.weights)
    seen = (features[0] + places).reshape(12, 5)
    weights = np.exp(seen @ attention)
    weights /= weights.sum(axis=0)
    values = (seen @ kernel).reshape(12, 2, 3)
    np.testing.assert_allclose(layer(features)[0], np.einsum("pn,pnd->nd", weights, values) + bias, rtol=1e-4)


def test_a_capsule_knows_where_it_found_something():
    layer = made(AttentionPooling(1, 2), np.zeros((1, 4, 4, 3), "float32"))
    features = np.zeros((2, 4, 4, 3), "float32")
    features[0, 0, 0] = features[1, 3, 3] = 5
    left, right = np.asarray(layer(features))
    assert np.abs(left - right).max() > 1e-3


def test_a_set_of_any_size_is_taken_by_one_model():
    elements = keras.Input((None, 6))
    model = keras.Model(elements, SeedPooling(2, 8, 2)(InducedSetAttention(8, 2, 3)(elements)))
    sets = np.random.default_rng(0).normal(size=(4, 5, 6)).astype("float32")
    for size in (3, 5):
        expected = model(sets[:, :size])
        np.testing.assert_allclose(model.predict(sets[:, :size], verbose=0), expected, atol=1e-6)
