"""A routing alone: one layer of capsules, over batch, types, grid and iterations."""

import dataclasses

import keras
import numpy as np

from capszoo.benchmarking.baseline import textbook
from capszoo.benchmarking.networks import GRAPH, OPEN, OURS, XLA
from capszoo.layers import ConvCapsules, DenseCapsules
from capszoo.routing import DynamicRouting, EMRouting
from capszoo.routing.cpu import enabled, host_calls

CLASSES, CHILD_POSE, CLASS_POSE = 10, 8, 16


@dataclasses.dataclass(frozen=True)
class Problem:
    """One layer and its input.

    where:
      routing: "em": `ConvCapsules`, windows of 3x3 with stride 2, from `types` to `types` capsules of 4x4 poses;
        "dynamic": `DenseCapsules`, from `types` capsules of 8 at every position to 10 classes of 16.
      batch: images. grid: height and width of the children's grid. iterations: of the routing.
    """

    routing: str
    batch: int
    types: int
    grid: int
    iterations: int = 3

    def layer(self):
        """The layer, unbuilt."""
        if self.routing == "em":
            return ConvCapsules(self.types, 3, 2, EMRouting(self.iterations))
        return DenseCapsules(CLASSES, CLASS_POSE, DynamicRouting(self.iterations))

    def children(self):
        """Random capsules, as the layer takes them, in arrays."""
        rng = np.random.default_rng(0)
        shape = (self.batch, self.grid, self.grid, self.types)
        if self.routing == "em":
            return rng.normal(size=(*shape, 4, 4)).astype("float32"), rng.random(shape, dtype="float32")
        return 0.3 * rng.normal(size=(*shape, CHILD_POSE)).astype("float32")


# The middle of each sweep: the first convolutional capsules of the small net of Hinton et al. 2018, and the class
# capsules of Sabour et al. 2017.
MIDDLE = {"em": Problem("em", 8, 16, 14), "dynamic": Problem("dynamic", 32, 32, 6)}
SWEEPS = {
    "em": {
        "batch": (1, 2, 4, 8, 16, 32),
        "types": (4, 8, 16, 32),
        "grid": (6, 10, 14, 18),
        "iterations": (1, 2, 3, 5),
    },
    "dynamic": {
        "batch": (1, 4, 16, 32, 64),
        "types": (8, 16, 32, 64),
        "grid": (3, 6, 9, 12),
        "iterations": (1, 2, 3, 5),
    },
}


def sweep(routing):
    """The problems of all sweeps, each with the name of what changes in it: `[(axis, Problem), ...]`.

    Errors: `ValueError` for a routing other than "em" and "dynamic".
    """
    if routing not in SWEEPS:
        raise ValueError(f"a routing alone must be one of {', '.join(SWEEPS)}. Received: {routing!r}")
    return [
        (axis, dataclasses.replace(MIDDLE[routing], **{axis: value}))
        for axis, values in SWEEPS[routing].items()
        for value in values
    ]


def variants(routing):
    """The forms that a routing has here."""
    layer, _ = _built(MIDDLE[routing])
    with host_calls(True):
        graph = [GRAPH] if enabled() and layer.routing.compilable else []
    return [OURS, *graph, XLA, *([OPEN] if textbook() else [])]


def _built(problem):
    """The layer of a problem, and its children as tensors."""
    children = keras.tree.map_structure(keras.ops.convert_to_tensor, problem.children())
    layer = problem.layer()
    # Capsules are a pair of poses and activations, or poses alone.
    pair = isinstance(children, tuple)
    layer.build(tuple(tuple(part.shape) for part in children) if pair else tuple(children.shape))
    return layer, children


def steps(problem, variant):
    """`(inference, training)`: functions without arguments that route, and that also form all gradients.

    Errors: `ValueError` on another backend than TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"a routing alone is measured on the TensorFlow backend. Received: {keras.backend.backend()!r}"
        )
    import tensorflow as tf

    layer, children = _built(problem)
    form = textbook().textbook_layer(layer) if variant == OPEN else layer
    allowed = variant == OURS

    @tf.function(autograph=False, jit_compile=variant == XLA)
    def route():
        with host_calls(allowed):
            return keras.tree.flatten(form(children))

    @tf.function(autograph=False, jit_compile=variant == XLA)
    def differentiate():
        inputs = keras.tree.flatten(children)
        with host_calls(allowed), tf.GradientTape() as tape:
            tape.watch(inputs)
            # Squares, lest the gradient of a sum be simpler than a network's.
            loss = sum(tf.reduce_sum(tf.square(output)) for output in keras.tree.flatten(form(children)))
        return tape.gradient(loss, [*inputs, *(weight.value for weight in layer.trainable_weights)])

    route, differentiate = (each.get_concrete_function() for each in (route, differentiate))
    # A copy to the host: on an accelerator it waits for the work.
    return lambda: np.asarray(route()[0]), lambda: np.asarray(differentiate()[-1])
