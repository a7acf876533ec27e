"""Iterative inference in place of routing: activities that agree with the image below and the label above."""

import functools

import keras
from keras import ops

from capszoo.data.preprocessing import grey_levels_to_unit
from capszoo.models.fitting import check_images
from capszoo.routing import length

OUTPUTS = ("free", "predicted")


def gradient(function, states):
    """Gradients of a scalar `function(states)` by every tensor of the dict `states`, on any backend."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.grad(function)(states)
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(states)
        value = function(states)
    return tape.gradient(value, states, unconnected_gradients="zero")


def descend(energy, states, steps, rate):
    """Plain gradient descent of an energy on activities: `steps` times x <- x - rate * dF/dx.

    where:
      energy: `energy(states)`, a scalar F. Of a sum over images every image descends by itself.
      states: dict of tensors x; the result is one of the same shapes.
      steps, rate: 500 and 0.01 in the paper.

    Source: Kiefer et al. 2022, section 3.1.
    """
    names = sorted(states)

    def body(_, values):
        before = dict(zip(names, values, strict=True))
        slopes = gradient(energy, before)
        return tuple(before[name] - rate * slopes[name] for name in names)

    values = ops.fori_loop(0, steps, body, tuple(states[name] for name in names))
    return dict(zip(names, values, strict=True))


class IterativeInference:
    """Infers the activities of a trained network between a clamped image and, where it is given, a clamped label.

        x_l = f_l(x_l-1) at first, x_0 the image: a feed-forward pass
        F = sum_l |x_l - f_l(x_l-1)|^2 + sum_j (|v_j| - y_j)^2 + sum_l eta_l sum_j |x_lj|
        repeat `steps` times, for all l at once: x_l <- x_l - rate * dF/dx_l

    where:
      f_l: the stages of the network, from the first convolution to the class capsules; weights do not change.
      x_l: their activities; x_lj is capsule j of a layer of capsules.
      v_j: poses of the class capsules. With `output="free"` v = x_L: the authors' code. With `output="predicted"` they
        are v = f_L(x_L-1), the energy has no state x_L and no error |x_L - f_L(x_L-1)|^2: appendix C. Then every step
        passes a whole layer of matrices, and a penalty may need a smaller rate to settle.
      y_j: `labels[B, O]`, 1 for the class of the image, else 0. Paper and code always clamp them. None leaves out the
        label's term; without a penalty nothing then moves.
      eta_l: `sparsity[stage]`, by name of a stage; 0 for those that are not named. The paper's penalty is
        {"class_capsules": 1}; the authors' code has it four times in one place, and {"hidden_capsules": -5}, a
        reward, for capsules between primary and class capsules.
      |x|: sqrt(x . x + 1e-7), see `capszoo.routing.length`.

    Images do not depend on each other. `__call__` is compiled, and can be exported like any function of tensors.
    Errors: `ImageError` for what are no images of the model; `ValueError` for labels of another shape, for another
    `output`, for a penalty on something that is no stage of capsules and for fewer than two stages.
    Source: Kiefer et al. 2022, section 3.1, figure 1 and appendix C.
    Differs from the authors' code: the ReLU after the first convolution stays; test images are not shifted.
    """

    def __init__(self, model, stages, steps=500, rate=0.01, sparsity=None, output="free"):
        if output not in OUTPUTS:
            raise ValueError(f"output must be 'free' or 'predicted'. Received: {output!r}")
        if len(stages) < 2:
            raise ValueError(f"at least two stages are needed. Received: {tuple(stages)}")
        capsules = [name for name in stages if len(model.get_layer(name).output.shape) in (3, 5)]
        for name in sparsity or {}:
            if name not in capsules:
                raise ValueError(f"sparsity must name stages of capsules, of {capsules}. Received: {name!r}")
        self.model = model
        self.layers = {name: model.get_layer(name) for name in stages}
        self.steps, self.rate, self.output = steps, rate, output
        self.sparsity = dict(sparsity or {})
        self._bottom, self._top = stages[0], stages[-1]
        self.free = tuple(stages) if output == "free" else tuple(stages[:-1])
        self._compiled = _compiled(self._infer)

    def start(self, images, count=None):
        """The activities `[B, ...]` of a feed-forward pass by stage, of the first `count` stages or of all."""
        check_images(self.model, images)
        states, below = {}, grey_levels_to_unit(images)
        for name, layer in list(self.layers.items())[:count]:
            states[name] = below = ops.cast(layer(below), "float32")
        return states

    def energies(self, images, activities, labels=None, penalised=True):
        """F of each image `[B]`, with or without the penalty, at activities that `__call__` or `start` returned.

        Errors: as `__call__`.
        """
        labels = labels if labels is None else self._one_hot(labels)
        free = {name: value for name, value in activities.items() if name in self.free}
        return self._energies(self.start(images, 1)[self._bottom], free, labels, penalised)

    def _energies(self, first, states, labels, penalised=True):
        """F of each image, where `first` is f_1 of the images, which does not change, and `states` are free."""
        predictions = self._predictions(first, states)
        errors = [_total(ops.square(states[name] - predictions[name])) for name in states]
        # What is not free is what is predicted.
        activities = {**predictions, **states}
        penalties = [
            eta * _total(length(activities[name])) for name, eta in self.sparsity.items() if penalised
        ]
        clamped = [] if labels is None else [_total(ops.square(length(activities[self._top]) - labels))]
        return sum(errors + penalties + clamped)

    def __call__(self, images, labels=None):
        """The activities by stage after the descent, those of the class capsules too: poses `[B, O, D]`."""
        check_images(self.model, images)
        if labels is not None:
            labels = self._one_hot(labels)
        return self._compiled(images, labels)

    def _one_hot(self, labels):
        """`labels` as floats. Errors: `ValueError` unless they have the shape `[B, O]`."""
        classes, labels = self.layers[self._top].output.shape[1], ops.convert_to_tensor(labels)
        if len(labels.shape) != 2 or labels.shape[1] not in (None, classes):
            raise ValueError(f"labels must be one-hot rows [B, {classes}]. Received: {tuple(labels.shape)}")
        return ops.cast(labels, "float32")

    def _infer(self, images, labels):
        states = self.start(images, len(self.free))
        first = states[self._bottom]
        energy = functools.partial(self._total_energy, first, labels)
        states = descend(energy, states, self.steps, self.rate)
        return {**self._predictions(first, states), **states}

    def _total_energy(self, first, labels, states):
        return ops.sum(self._energies(first, states, labels))

    def _predictions(self, first, states):
        """f_l(x_l-1) of every stage."""
        below, predictions = None, {}
        for name, layer in self.layers.items():
            predictions[name] = first if below is None else ops.cast(layer(below), "float32")
            below = states.get(name)
        return predictions


def _total(values):
    """The sum of everything but the batch: `[B]`."""
    return ops.sum(ops.reshape(values, (ops.shape(values)[0], -1)), axis=-1)


def _compiled(function):
    """`function` as one graph of the backend."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, autograph=False, reduce_retracing=True)


def toy_network(output_only=True, penalty=None, steps=500, rate=0.01):
    """Hidden activities `[3]` of a linear 3-3-1 network between an input and a target: routing in miniature.

        e1 = x - W1 u,  e2 = W2 x - t
        F = (e2^2 + R(x))                                    # output_only
        F = (|e1|^2 + R(x)) + (e2^2 + R(x))                  # otherwise

    where:
      u, t: input (-1, 5, 2) and target 2, clamped; W1 the identity, W2 = (1, 1, 1).
      x: at first W1 u. By 500 steps it is, with `output_only`, (-2.33, 3.67, 0.67) without a penalty: mass is shared;
        (0, 1.5, 0) with "l1": one object explains everything; (0.5, 0.5, 0.5) with "l2".
      R(x): 0, sum |x| for `penalty="l1"`, sum x^2 for "l2"; it comes with each error.

    Errors: `ValueError` for another penalty.
    Source: Kiefer et al. 2022, appendix B and figure 3; input, target and the weights of the terms from the authors'
    code.
    """
    penalties = {None: lambda x: 0.0, "l1": lambda x: ops.sum(ops.abs(x)), "l2": lambda x: ops.sum(x * x)}
    if penalty not in penalties:
        raise ValueError(f"penalty must be None, 'l1' or 'l2'. Received: {penalty!r}")
    below = ops.convert_to_tensor([-1.0, 5.0, 2.0])

    def energy(states):
        x = states["hidden"]
        regulariser = penalties[penalty](x)
        of_output = ops.square(ops.sum(x) - 2.0) + regulariser
        return of_output if output_only else of_output + ops.sum(ops.square(x - below)) + regulariser

    return _compiled(lambda x: descend(energy, {"hidden": x}, steps, rate)["hidden"])(below)
