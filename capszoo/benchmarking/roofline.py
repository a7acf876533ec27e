"""The roofline of routing: the least time that its arithmetic takes and, as a graph, moving its votes."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import keras
import numpy as np
from keras import ops

from capszoo.benchmarking.machine import facts
from capszoo.benchmarking.networks import GRAPH, OURS
from capszoo.layers.matrix import _RoutedCapsules
from capszoo.layers.routes import routed_layers
from capszoo.routing import EMRouting, KernelRouting, LSTMRouting, VariationalBayesRouting
from capszoo.training.accelerators import accelerators

FLOAT = 4  # bytes
# A product of matrices that is large enough to be computed as fast as products are.
SIDE, REPEATS, ADDITIONS = 2048, 5, 20


def roofline(model, speeds):
    """What inference of a network's routed layers needs of one image, and how close its forms come to it.

        least seconds of compiled routing = operations / operations a second
        least seconds of the graph = max(the same, bytes / bytes a second)
        share = least seconds / seconds of the whole network

    where:
      model: a network of which some layers of capsules with poses route by EM, variational Bayes, similarity learning
        or an LSTM in a compiled form; the other layers' work is in its seconds and not in the bound.
      speeds: images a second of the forms `OURS` and, where there is one, `GRAPH`.
      operations: additions, multiplications and functions of float32 numbers, each counted once, votes made once.
      bytes: votes, and what an LSTM keeps of each pair, written once and read for every sum that they are in. Compiled
        routing makes votes where it uses them.
      operations a second: of a product of 2,048 x 2,048 matrices here and now; bytes a second: of additions to as many
        numbers as the largest layer has in its votes of one image, by each CPU, read and written.

    Returns a dict of these, with `forms`: `{form: {"seconds", "least", "share"}}`; None where no layer is of that kind,
    and with an accelerator, whose rates these are not.
    """
    layers = [
        layer
        for layer in routed_layers(model)
        if isinstance(layer, _RoutedCapsules) and type(layer.routing) in WORK and layer.routing.fusible
    ]
    if not layers or accelerators():
        return None
    pairs = [_pairs(layer) for layer in layers]
    work = [
        WORK[type(layer.routing)](layer.routing, numbers, layer.width)
        for layer, (_, numbers) in zip(layers, pairs, strict=True)
    ]
    operations = sum(count * operations for (count, _), (operations, _) in zip(pairs, work, strict=True))
    moved = sum(FLOAT * count * numbers for (count, _), (_, numbers) in zip(pairs, work, strict=True))
    rates = operation_rate(), byte_rate(max(count * numbers for count, numbers in pairs))
    arithmetic, traffic = operations / rates[0], moved / rates[1]
    least = {OURS: arithmetic, GRAPH: max(arithmetic, traffic)}
    return {
        "operations": operations,
        "bytes": moved,
        "operations_per_second": rates[0],
        "bytes_per_second": rates[1],
        "forms": {
            form: {"seconds": 1 / speeds[form], "least": bound, "share": bound * speeds[form]}
            for form, bound in least.items()
            if form in speeds
        },
    }


def _pairs(layer):
    """How many pairs of child and parent a layer has in one image, and how many numbers are in a vote."""
    nothing = keras.tree.map_structure(lambda part: ops.zeros((1, *part.shape[1:])), layer.input)
    shape = layer.votes_of(nothing).shape
    return math.prod(shape[1:-1]), shape[-1]


# Of one pair of child and parent with votes of D numbers, in rows of a width: operations, the vote included, and
# numbers that are written and read where votes are in memory.


def _vote(numbers, width):
    return 2 * numbers * width


def _gaussians(routing, numbers, width):
    """EM and variational Bayes: T M-steps with two sums and squares, and an E-step between any two."""
    count = routing.num_iterations
    m_step, e_step = 6 * numbers + 3, 2 * numbers + 5
    operations = _vote(numbers, width) + count * m_step + (count - 1) * e_step
    return operations, numbers * (1 + 2 * count + (count - 1))


def _similarity(routing, numbers, width):
    """A first mean, T updates with a mean, and distances before each and at the end."""
    count, components = routing.num_iterations, routing.components
    distance, update = 2 * numbers + 3 + 4 * components, 6 + 2 * numbers
    operations = _vote(numbers, width) + numbers + count * update + (count + 1) * distance + 2
    return operations, numbers * (1 + 1 + count + (count + 1))


def _recurrent(routing, numbers, width):
    """Votes to four gates once; T steps of a cell with U units, the first without states, a network and a mean."""
    count, units = routing.num_iterations, routing.units
    widths = units, *routing.compatibility, 1
    network = sum(2 * below * above for below, above in pairwise(widths))
    cell, states = 8 * units + 10 * units + network + 6 + 2 * numbers, 8 * units * (units + 1)
    operations = _vote(numbers, width) + 8 * units * numbers + count * cell + (count - 1) * states + 2 * units
    kept = 4 * units * (1 + count) + 4 * units * (count - 1)
    return operations, numbers * (2 + count) + kept


WORK = {
    EMRouting: _gaussians,
    VariationalBayesRouting: _gaussians,
    KernelRouting: _similarity,
    LSTMRouting: _recurrent,
}


def operation_rate():
    """Operations a second of a large product of matrices, on all CPUs."""
    matrix = np.ones((SIDE, SIDE), "float32")
    return 2 * SIDE**3 / _least_seconds(lambda: matrix @ matrix)


def byte_rate(count):
    """Bytes a second, read and written, where each CPU adds to `count` numbers of its own."""
    cpus = facts()["cpus"]
    numbers = [np.ones(count, "float32") for _ in range(cpus)]

    def add(mine):
        for _ in range(ADDITIONS):
            np.add(mine, 1.0, out=mine)

    with ThreadPoolExecutor(cpus) as pool:
        seconds = _least_seconds(lambda: list(pool.map(add, numbers)))
    return 2 * FLOAT * count * cpus * ADDITIONS / seconds


def _least_seconds(step):
    """Seconds of the fastest call but the first."""
    found = []
    for _ in range(1 + REPEATS):
        started = time.perf_counter()
        step()
        found.append(time.perf_counter() - started)
    return min(found[1:])
