"""Capsule layers as open implementations write them, in TensorFlow: the baseline of `capszoo bench`.

Votes are stored as [N, I, O, D] (N receptive fields of all images, I children, O parents). Routing is a handful of
broadcast products and reductions over the votes, with a variance of two passes, unrolled over iterations; gradients
are those of automatic differentiation. `twin` puts these layers in the place of ours in a Keras model and shares all
weights, so that both compute the same function.

Written as the public TensorFlow and Keras repositories of both papers do, with four differences. Votes come from one
`einsum`, where most of them tile poses over the parents and multiply, which takes half as long again. Each child's
coefficients sum to one over its parents at all positions, of one type with the authors' variant, which most of them
forget; gradients flow through all iterations of dynamic routing; activations stay logarithms.
"""

import math

import keras
import numpy as np
import tensorflow as tf

from capszoo.layers.dense import DenseCapsules
from capszoo.layers.matrix import POSE_SIDE, ConvCapsules, SharedClassCapsules
from capszoo.layers.routes import Routes, routed_layers
from capszoo.routing.dynamic import DynamicRouting
from capszoo.routing.em import EMRouting

VARIANCE_FLOOR = 5e-4
# Of convolutional and of class capsules.
MASS_FLOOR, CLASS_MASS_FLOOR = 1e-7, 1e-5
# Of the authors' code, variant "official": of means, of beta_a, and of the sums over a child's parents.
DAMPING, ACTIVATION_SCALE, SHARE_FLOOR = 0.1, 5000.0, 1e-7
EPSILON = 1e-7
NOTHING = -1e30
LOG_2_PI = math.log(2.0 * math.pi)


def matrix_votes(poses, matrices):
    """Votes `[N, I, O, 4, 4]` of poses `[N, I, 4, 4]` and matrices `[I, O, 4, 4]`."""
    return tf.einsum("nirq,ioqc->niorc", poses, matrices)


def em_routing(votes, activations, beta_u, beta_a, temperatures, mass_floor, uniform, normalise, damping=0.0):
    """Means `[N, O, D]` and activations `[N, O]` of votes `[N, I, O, D]` and children's activations `[N, I]`.

    where:
      temperatures: lambda_t, one for each iteration.
      uniform: coefficients of iteration 0, `[N, I, 1]` or `[1, 1, 1]`.
      normalise: `normalise(z[N, I, O]) -> coefficients[N, I, O]`.
      damping: the share of a mean that the previous one keeps.

    Source: Hinton et al. 2018, Procedure 1; damping from the authors' code.
    """
    coefficients, mean = uniform, 0.0
    for iteration, temperature in enumerate(temperatures):
        share = coefficients * activations[..., None]  # [N, I, O]
        mass = tf.reduce_sum(share, axis=1) + mass_floor  # [N, O]
        share, total = share[..., None], mass[:, None, :, None]
        fitted = tf.reduce_sum(share * votes, axis=1, keepdims=True) / total  # [N, 1, O, D]
        mean = (1.0 - damping) * fitted + damping * mean if damping else fitted
        variance = tf.reduce_sum(share * tf.square(votes - mean), axis=1, keepdims=True) / total
        variance += VARIANCE_FLOOR
        cost = tf.reduce_sum(beta_u[:, None] + 0.5 * tf.math.log(variance[:, 0]), axis=-1) * mass
        logits = temperature * (beta_a - cost)
        if iteration < len(temperatures) - 1:
            log_density = -0.5 * (
                tf.reduce_sum(tf.square(votes - mean) / variance, axis=-1)
                + tf.reduce_sum(tf.math.log(variance) + LOG_2_PI, axis=-1)
            )
            coefficients = normalise(tf.math.log_sigmoid(logits)[:, None] + log_density)
    return mean[:, 0], tf.sigmoid(logits)


def squash(vectors):
    """Sabour et al. 2017, equation 1, of `[..., D]`."""
    squared = tf.reduce_sum(tf.square(vectors), axis=-1, keepdims=True)
    return squared / (1.0 + squared) * vectors / tf.sqrt(squared + EPSILON)


def vector_votes(poses, matrices):
    """Votes `[B, I, O, D]` of poses `[B, I, C]` and matrices `[I, O, D, C]`."""
    return tf.einsum("bic,iodc->biod", poses, matrices)


def dynamic_routing(votes, num_iterations, bias, leaky=False):
    """Parents' poses `[B, O, D]` of votes `[B, I, O, D]`. Source: Sabour et al. 2017, Procedure 1."""
    logits = tf.zeros_like(votes[..., :1])  # [B, I, O, 1]
    for iteration in range(num_iterations):
        if leaky:
            silent = tf.zeros_like(logits[:, :, :1])
            coefficients = tf.nn.softmax(tf.concat([silent, logits], axis=2), axis=2)[:, :, 1:]
        else:
            coefficients = tf.nn.softmax(logits, axis=2)
        poses = squash(tf.reduce_sum(coefficients * votes, axis=1, keepdims=True) + bias)  # [B, 1, O, D]
        if iteration < num_iterations - 1:
            logits += tf.reduce_sum(votes * poses, axis=-1, keepdims=True)
    return poses[:, 0]


class _Textbook(keras.layers.Layer):
    """A layer that computes what `layer`, one of ours, computes, with its weights."""

    def __init__(self, layer):
        super().__init__(name=layer.name, dtype="float32")
        self.layer = layer
        self.routing = layer.routing

    def _em(self, votes, activations, mass_floor, uniform, normalise):
        routing = self.routing
        iterations = range(routing.num_iterations)
        temperatures = [routing.final_lambda * (1.0 - 0.95 ** (t + 1)) for t in iterations]
        beta_u, beta_a = tf.convert_to_tensor(routing.beta_u), tf.convert_to_tensor(routing.beta_a)
        damping = 0.0
        if routing.variant == "official":
            # -lambda (n (sum log(var) + D beta_u (1 + log(2 pi))) + 5000 beta_a), a quarter of it for class capsules.
            beta_u, beta_a = beta_u * (1.0 + LOG_2_PI) / 2.0, -beta_a * ACTIVATION_SCALE / 2.0
            factor = 2.0 if routing.neighbourhood else 0.5
            temperatures, damping = [factor * temperature for temperature in temperatures], DAMPING
        arguments = beta_u, beta_a, temperatures, mass_floor, uniform, normalise, damping
        return em_routing(votes, activations, *arguments)


class TextbookConvCapsules(_Textbook):
    """`ConvCapsules`: patches by `tf.gather`, and sums over each child's parents by gathering them in turn."""

    def __init__(self, layer):
        super().__init__(layer)
        neighbourhood = layer.neighbourhood
        count = math.prod(neighbourhood.child_grid)
        # [taps, H', W'] -> [positions, taps]
        self.cells = neighbourhood.unfold_array(np.arange(count)).reshape(neighbourhood.taps, -1).T
        flat = self.cells.ravel()
        pairs = [np.flatnonzero(flat == cell) for cell in range(count)]
        # [cells, most parents]: through which of the positions * taps a cell is seen; one more stands for nobody.
        self.seen_by = np.full((count, max(map(len, pairs))), len(flat))
        for cell, found in enumerate(pairs):
            self.seen_by[cell, : len(found)] = found
        self.share = 1.0 / np.maximum(neighbourhood.num_parents().ravel(), 1)[self.cells] / layer.types

    def call(self, capsules):
        poses, activations = capsules
        (positions, taps), types, parents = self.cells.shape, activations.shape[-1], self.layer.types
        children = taps * types
        poses = tf.reshape(poses, (-1, activations.shape[1] * activations.shape[2], types * POSE_SIDE**2))
        activations = tf.reshape(activations, (-1, poses.shape[1], types))
        # [B, H * W, ...] -> [B, positions, taps, ...] -> [N, I, ...]
        poses = tf.reshape(tf.gather(poses, self.cells, axis=1), (-1, children, POSE_SIDE, POSE_SIDE))
        activations = tf.reshape(tf.gather(activations, self.cells, axis=1), (-1, children))
        # [K, K, types, 4, O, 4] -> [I, O, 4, 4]
        kernel = tf.convert_to_tensor(self.layer.kernel)
        matrices = tf.transpose(tf.reshape(kernel, (children, POSE_SIDE, parents, POSE_SIDE)), (0, 2, 1, 3))
        votes = tf.reshape(matrix_votes(poses, matrices), (-1, children, parents, POSE_SIDE**2))

        def normalise(z):
            # [N, I, O] -> [B, positions * taps, types], over the parents at one position
            total = tf.reshape(tf.reduce_logsumexp(z, axis=-1), (-1, positions * taps, types))
            total = tf.pad(total, ((0, 0), (0, 1), (0, 0)), constant_values=NOTHING)
            # [B, cells, parents, types] -> [B, cells, types] -> [B, positions, taps, types]
            total = tf.reduce_logsumexp(tf.gather(total, self.seen_by, axis=1), axis=2)
            total = tf.gather(total, self.cells, axis=1)
            return tf.exp(z - tf.reshape(total, (-1, children, 1)))

        def normalise_by_type(z):
            # [N, I, O] -> [B, positions * taps, types, O], over the positions of each type of parent
            z = tf.reshape(z, (-1, positions * taps, types, parents))
            shares = tf.exp(z - tf.reduce_max(z, axis=1, keepdims=True))
            total = tf.pad(shares, ((0, 0), (0, 1), (0, 0), (0, 0)))
            total = tf.reduce_sum(tf.gather(total, self.seen_by, axis=1), axis=2) + SHARE_FLOOR
            total = tf.reshape(tf.gather(total, self.cells, axis=1), tf.shape(shares))
            return tf.reshape(shares / total, (-1, children, parents))

        share = np.repeat(self.share.astype("float32"), types, axis=1)[None, ..., None]
        uniform = tf.reshape(tf.tile(share, [tf.shape(votes)[0] // positions, 1, 1, 1]), (-1, children, 1))
        if self.routing.variant == "official":
            uniform, normalise = tf.constant(1.0 / parents, shape=(1, 1, 1)), normalise_by_type
        poses, activations = self._em(votes, activations, MASS_FLOOR, uniform, normalise)
        grid = self.layer.neighbourhood.parent_grid
        return (
            tf.reshape(poses, (-1, *grid, parents, POSE_SIDE, POSE_SIDE)),
            tf.reshape(activations, (-1, *grid, parents)),
        )


class TextbookClassCapsules(_Textbook):
    """`SharedClassCapsules`: matrices tiled over positions."""

    def call(self, capsules):
        poses, activations = capsules
        height, width, types = activations.shape[1:]
        children, parents = height * width * types, self.layer.types
        matrices = tf.transpose(tf.convert_to_tensor(self.layer.kernel), (0, 2, 1, 3))  # [types, O, 4, 4]
        matrices = tf.tile(matrices, [height * width, 1, 1, 1])
        votes = matrix_votes(tf.reshape(poses, (-1, children, POSE_SIDE, POSE_SIDE)), matrices)
        votes = tf.reshape(votes, (-1, children, parents, POSE_SIDE**2))
        if self.layer.coordinates is not None:
            votes += self._addition(height, width, types)
        activations = tf.reshape(activations, (-1, children))
        uniform = tf.constant(1.0 / parents, shape=(1, 1, 1))
        poses, activations = self._em(votes, activations, CLASS_MASS_FLOOR, uniform, tf.nn.softmax)
        return tf.reshape(poses, (-1, parents, POSE_SIDE, POSE_SIDE)), activations

    def _addition(self, height, width, types):
        """The coordinates of each child: `[I, 1, D]`."""
        rows, columns = self.layer.coordinates
        row_entry, column_entry = self.layer.entries
        addition = np.zeros((height, width, types, POSE_SIDE**2), "float32")
        addition[..., row_entry] = np.reshape(rows, (-1, 1, 1))
        addition[..., column_entry] = np.reshape(columns, (1, -1, 1))
        return addition.reshape(-1, 1, POSE_SIDE**2)


class TextbookDenseCapsules(_Textbook):
    """`DenseCapsules` with dynamic routing."""

    def call(self, poses):
        poses = tf.reshape(poses, (-1, self.layer.children, poses.shape[-1]))
        # [I, C, O, D] -> [I, O, D, C]
        matrices = tf.transpose(tf.convert_to_tensor(self.layer.kernel), (0, 2, 3, 1))
        routing = self.routing
        bias = 0.0 if routing.bias is None else tf.convert_to_tensor(routing.bias)
        return dynamic_routing(vector_votes(poses, matrices), routing.num_iterations, bias, routing.leaky)


def textbook_layer(layer):
    """The textbook form of one of our routed layers.

    Errors: `ValueError` for a routed layer that has none: another routing, an option of EM, vector poses.
    """
    forms = {
        ConvCapsules: TextbookConvCapsules,
        SharedClassCapsules: TextbookClassCapsules,
        DenseCapsules: TextbookDenseCapsules,
    }
    form = forms.get(type(layer))
    if form is TextbookDenseCapsules:
        known = type(layer.routing) is DynamicRouting
    else:
        routing = layer.routing
        logistic = type(routing) is EMRouting and routing.fusible
        known = form is not None and layer.pose == "matrix" and logistic
    if not known:
        raise ValueError(
            "only EM routing of matrices (logistic) and dynamic routing have a textbook form. "
            f"Received: {type(layer).__name__} with {type(layer.routing).__name__}"
        )
    return form(layer)


def twin(model):
    """`model` with every routed layer in textbook form; layers and weights are shared with it.

    Errors: `ValueError` as `textbook_layer`, and for a model that routes nothing.
    """
    if not routed_layers(model):
        raise ValueError(f"a model with capsules that are routed is needed. Received: {model.name!r}")
    return keras.models.clone_model(
        model, clone_function=lambda layer: textbook_layer(layer) if isinstance(layer, Routes) else layer
    )
