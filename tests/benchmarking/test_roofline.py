"""The roofline counts what a naive routing does, one number at a time."""

import numpy as np
import pytest

from capszoo.benchmarking import networks, roofline, tables
from capszoo.models import DynamicCapsNet, MatrixCapsNet
from capszoo.routing import EMRouting, KernelRouting

CHILDREN = 200
# A pose of four numbers: a matrix, and a vector.
MATRIX, VECTOR = (2, 2), (1, 4)


class Number:
    """A number that counts what is done with any."""

    done = 0

    def __init__(self, value):
        self.value = float(value)

    def _counted(self, value):
        Number.done += 1
        return Number(value)

    def __add__(self, other):
        return self._counted(self.value + _value(other))

    def __sub__(self, other):
        return self._counted(self.value - _value(other))

    def __mul__(self, other):
        return self._counted(self.value * _value(other))

    def __truediv__(self, other):
        return self._counted(self.value / _value(other))

    def exp(self):
        return self._counted(np.exp(self.value))


def _value(number):
    return number.value if isinstance(number, Number) else number


def add_up(numbers):
    first, *others = numbers
    for number in others:
        first = first + number
    return first


def numbers(rng, *shape):
    return np.vectorize(Number, otypes=[object])(rng.uniform(0.1, 1, shape))


def vote(rng, shape):
    pose, matrix = numbers(rng, *shape), numbers(rng, shape[1], shape[1])
    return np.array([add_up(row * column) for row in pose for column in matrix.T])


def em(rng, count, shape):
    """One parent's Procedure 1, of Hinton et al. 2018; a softmax over one parent is its exponential over a sum."""
    votes = [vote(rng, shape) for _ in range(CHILDREN)]
    activations, coefficients = numbers(rng, CHILDREN), numbers(rng, CHILDREN)
    for step in range(count):
        shares = coefficients * activations
        mass = add_up(shares)
        shares = shares / mass
        mean = add_up([v * share for share, v in zip(shares, votes, strict=True)])
        squares = [(v - mean) * (v - mean) for v in votes]
        variance = add_up([s * share for share, s in zip(shares, squares, strict=True)])
        if step < count - 1:
            weights = [add_up(s / variance).exp() for s in squares]
            total = add_up(weights)
            coefficients = np.array([weight / total for weight in weights])


def similarity(rng, count, shape):
    """One parent's coefficients and mean, equations 2 to 15 of Faria 2019."""
    votes = [vote(rng, shape) for _ in range(CHILDREN)]
    prior, precisions, mixing = numbers(rng, CHILDREN), numbers(rng, 4), numbers(rng, 4)

    def similarities(mean):
        distances = [add_up((v - mean) * (v - mean)) for v in votes]
        return [
            add_up(
                [w * (distance * precision).exp() for w, precision in zip(mixing, precisions, strict=True)]
            )
            for distance in distances
        ]

    mean = add_up(votes)
    for _ in range(count):
        logits = [(k + b) / 2 for k, b in zip(similarities(mean), prior, strict=True)]
        weights = [logit.exp() for logit in logits]
        total = add_up(weights)
        mean = add_up([v * (weight / total) for weight, v in zip(weights, votes, strict=True)])
    add_up(similarities(mean))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("naive", "create", "shape"),
    [
        (em, lambda count: EMRouting(num_iterations=count), MATRIX),
        (em, lambda count: EMRouting(num_iterations=count), VECTOR),
        (similarity, lambda count: KernelRouting(4, num_iterations=count), MATRIX),
    ],
)
def test_operations_are_those_of_a_naive_routing(naive, create, shape, count):
    Number.done = 0
    naive(np.random.default_rng(0), count, shape)
    routing = create(count)
    operations, _ = roofline.WORK[type(routing)](routing, 4, shape[1])
    # A few operations of a pair are another formula's; a sum has one addition less than numbers.
    np.testing.assert_allclose(operations * CHILDREN, Number.done, rtol=0.03)


def test_the_bound_of_a_form_is_that_of_what_it_needs_most(monkeypatch):
    model = MatrixCapsNet(channels=8, primary_types=2, conv1_types=3, conv2_types=4).build((20, 20, 1), 5)
    rates = {"operation_rate": lambda: 1e9, "byte_rate": lambda count: 1e9}
    for name, rate in rates.items():
        monkeypatch.setattr(roofline, name, rate)
    speeds = {networks.OURS: 100.0, networks.GRAPH: 10.0, networks.XLA: 20.0}
    found = roofline.roofline(model, speeds)
    # Votes of 16 numbers, three iterations: written once, read for eight sums.
    pairs = 3 * 3 * (9 * 2) * 3 + 1 * 1 * (9 * 3) * 4 + 4 * 5
    assert found["bytes"] == 4 * 16 * 9 * pairs
    ours, graph = found["forms"][networks.OURS], found["forms"][networks.GRAPH]
    assert ours["least"] == pytest.approx(found["operations"] / 1e9)
    assert graph["least"] == pytest.approx(max(found["operations"], found["bytes"]) / 1e9)
    assert ours["share"] == pytest.approx(100 * ours["least"])
    assert found["forms"].keys() == {networks.OURS, networks.GRAPH}
    assert len(tables.roofline_table(found).rows) == 2


@pytest.mark.parametrize(
    "architecture",
    [
        DynamicCapsNet(channels=8, primary_types=2, decoder=False),
        MatrixCapsNet(channels=8, primary_types=2, conv1_types=3, conv2_types=4, activation="mixing"),
    ],
)
def test_networks_without_compiled_routing_have_none(architecture):
    model = architecture.build((20, 20, 1), 5)
    assert roofline.roofline(model, {networks.OURS: 1.0}) is None


def test_rates_are_of_this_machine():
    assert 1e8 < roofline.operation_rate() < 1e15
    assert 1e8 < roofline.byte_rate(100_000) < 1e14
