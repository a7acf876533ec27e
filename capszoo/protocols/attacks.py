"""Adversarial images: pictures changed by so little that only a classifier sees another thing.

`gradient(images, labels)`, which every attack takes, gives the derivative of each image's loss for its label with
respect to the image: `[B, H, W, C]`, `[B]` -> `[B, H, W, C]`. An attack gives the changed images of each epsilon, one
after the other. The gradient's sign alone is used, so that models with very different gradients can be compared.
"""

import keras
import numpy as np
from keras import ops

from capszoo.routing.cpu import host_calls

BIM_STEPS = 5
# How far all steps of BIM would lead, as a multiple of epsilon, were they not held back at epsilon.
BIM_REACH = 1.25
LOSSES = ("cross_entropy", "objective")


def fgsm(gradient, images, labels, epsilons, low=-np.inf, high=np.inf, targeted=False):
    """The fast gradient sign method: one step from the images, away from their labels or towards others.

        x' = clip(x + epsilon * sign(dL(x, y) / dx), low, high)              # y: the images' own classes
        x' = clip(x - epsilon * sign(dL(x, y) / dx), low, high)              # targeted; y: the classes to be taken for

    where:
      x, y: images `[B, H, W, C]` and labels `[B]`.
      epsilons: E sizes of the step, each at least 0, in the unit of the images; E arrays like `images` are given. The
        gradient is taken once for all of them.
      low, high: least and greatest value of a pixel; numbers, or arrays that broadcast to the images.

    Errors: `ValueError` for a negative epsilon.
    Source: Goodfellow et al. 2014, section 4; Hinton et al. 2018, section 6.
    """
    _check(epsilons)
    direction = (-1 if targeted else 1) * np.sign(gradient(images, labels))
    for epsilon in epsilons:
        yield np.clip(images + np.float32(epsilon) * direction, low, high)


def bim(gradient, images, labels, epsilons, low=-np.inf, high=np.inf, targeted=False):
    """The basic iterative method: five small steps of `fgsm`, never further than epsilon from the images.

        x_0 = x,   x_{n+1} = clip(x_n +- alpha * sign(dL(x_n, y) / dx_n), max(low, x - epsilon), min(high, x + epsilon))
        alpha = 1.25 * epsilon / 5

    Arguments and errors are those of `fgsm`; the gradient is taken five times for each epsilon.
    Source: Kurakin et al. 2016, section 2.2; Hinton et al. 2018, section 6.
    Differs from the paper: it gives neither number nor size of the steps. Kurakin et al. take steps of one grey level,
    min(epsilon + 4, 1.25 * epsilon) of them; here the number is fixed and their reach, 1.25 * epsilon, is kept.
    """
    _check(epsilons)
    for epsilon in map(np.float32, epsilons):
        step = np.float32((-1 if targeted else 1) * BIM_REACH / BIM_STEPS) * epsilon
        least, greatest = np.maximum(low, images - epsilon), np.minimum(high, images + epsilon)
        changed = images
        for _ in range(BIM_STEPS):
            changed = np.clip(changed + step * np.sign(gradient(changed, labels)), least, greatest)
        yield changed


def _check(epsilons):
    if not all(epsilon >= 0 for epsilon in epsilons):
        raise ValueError(f"every epsilon must be at least 0. Received: {list(epsilons)}")


def loss_gradient(model, recipe, loss="cross_entropy"):
    """The function `gradient(images, labels)` of a model.

        L(x, y) = -log p_y(x),   p_k = a_k / sum_j a_j                  # loss="cross_entropy"
                = log(1 + exp(log sum_{k != y} a_k - log a_y))          # as it is computed

    where:
      a: the scores, activations of the class capsules or the probabilities of a softmax (which sum to one already).
      loss: "cross_entropy", or "objective": what the recipe trains on, at the end of its training (for the spread
        loss: with its last margin). Where the spread loss has what it wants, it is constant, and an attack on it does
        nothing at all.

    Errors: `ValueError` for another loss; `RuntimeError` on another backend than TensorFlow.
    Source: Hinton et al. 2018, section 6: "in the direction that increases the loss", and targeted "to maximize the
    classification probability of a particular wrong class".
    Differs from the paper: it does not name the loss. Minus the logarithm of the classification probability is what
    both sentences have in common.
    """
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}. Received: {loss!r}")
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(f"attacks need the TensorFlow backend. Received: {keras.backend.backend()}")
    import tensorflow as tf

    arrange, losses = (_cross_entropy if loss == "cross_entropy" else _objective)(model, recipe)

    @tf.function(reduce_retracing=True)
    def derivative(images, labels):
        with host_calls(True), tf.GradientTape() as tape:
            tape.watch(images)
            # The image may be a target too, of a decoder. The rows of a batch do not depend on each other, so the sum
            # has each image's own derivative.
            total = ops.sum(losses(*arrange({"images": images, "labels": labels})))
        return tape.gradient(total, images)

    def gradient(images, labels):
        return derivative(tf.constant(images, tf.float32), tf.constant(labels, tf.int64)).numpy()

    return gradient


def _cross_entropy(model, recipe):
    def losses(inputs, targets):
        scores = model(inputs["images"], training=False)["scores"]
        logarithms = ops.log(ops.maximum(scores, np.finfo(np.float32).tiny))
        right = ops.one_hot(targets["labels"], scores.shape[-1], dtype="bool")
        others = ops.logsumexp(ops.where(right, -1e30, logarithms), axis=-1)
        # The same as -log p_y, but where p_y rounds to one this has still a gradient, and the right one.
        return ops.softplus(others - ops.sum(ops.where(right, logarithms, 0.0), axis=-1))

    return lambda batch: ({"images": batch["images"]}, {"labels": batch["labels"]}), losses


def _objective(model, recipe):
    objective = recipe.objective(model)

    def losses(inputs, targets):
        outputs = objective.model(inputs, training=False)
        return sum(loss.call(targets[name], outputs[name]) for name, loss in objective.losses.items())

    return objective.arrange, losses
