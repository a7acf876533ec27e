"""EM routing of matrix capsules on the CPU: the kernel as a differentiable operation of TensorFlow."""

import numpy as np
import tensorflow as tf

from capszoo.routing.em import VARIANCE_FLOOR
from capszoo.routing.fused.em_backward import backward
from capszoo.routing.fused.em_forward import Fit, forward
from capszoo.routing.fused.lanes import LANES
from capszoo.routing.fused.votes import POSE, Inputs, Problem


class FusedEM:
    """EM routing, variant "paper" with logistic activations, of votes V = M W + addition between 4x4 matrices.

    where:
      child: int array `[P, I]`, which of an image's C children the parents at each of P positions see.
      matrix: int array `[I]`, which of the transformations each of them uses.
      addition: array `[I, 16]`, added to its votes.
      uniform: array `[P, I]`, its coefficient in iteration 0.
      scales: lambda_t of every iteration.
      mass_floor: added to each parent's amount of data.

    `__call__(poses, activations, kernel, beta_u, beta_a)` takes poses `[B, C, 16]`, activations `[B, C]`,
    transformations `[matrices, 4, O, 4]`, and `[O]` each of beta_u and beta_a, and returns mu_j `[B, P, O, 16]` and
    a_j `[B, P, O]`.
    Source: Hinton et al. 2018, Procedure 1; the gradient is its derivative, written out in `em_backward`.
    """

    def __init__(self, child, matrix, addition, uniform, scales, mass_floor):
        self.child = np.ascontiguousarray(child, "int64")
        self.matrix = np.ascontiguousarray(matrix, "int64")
        self.addition = np.ascontiguousarray(addition, "float32").ravel()
        self.uniform = np.ascontiguousarray(uniform, "float32")
        self.scales = np.ascontiguousarray(scales, "float32")
        self.mass_floor = np.float32(mass_floor)

    def __call__(self, poses, activations, weights, beta_u, beta_a):
        positions, children, types = self.child.shape[0], activations.shape[1], beta_u.shape[0]
        blocks = -(-types // LANES)
        padding = blocks * LANES - types
        problem = Problem(
            self.child,
            self.matrix,
            self.addition,
            self.uniform,
            self.scales,
            children,
            blocks,
            types,
            self.mass_floor,
            np.float32(VARIANCE_FLOOR),
        )
        # [matrices, 4, O, 4] -> [matrices, 4, 4, K, lanes] -> [matrices, K, 16, lanes]
        weights = tf.pad(tf.transpose(weights, (0, 1, 3, 2)), ((0, 0), (0, 0), (0, 0), (0, padding)))
        weights = tf.reshape(weights, (-1, POSE, blocks, LANES))
        weights = tf.transpose(weights, (0, 2, 1, 3))
        betas = [tf.pad(beta, ((0, padding),)) for beta in (beta_u, beta_a)]
        mean, logits = _operation(problem)(poses, activations, weights, *betas)
        # [B, P, K, 16, lanes] -> [B, P, O, 16]
        mean = tf.transpose(tf.reshape(mean, (-1, positions, blocks, POSE, LANES)), (0, 1, 2, 4, 3))
        mean = tf.reshape(mean, (-1, positions, blocks * LANES, POSE))[:, :, :types]
        return mean, tf.sigmoid(tf.reshape(logits, (-1, positions, blocks * LANES))[:, :, :types])


def _operation(problem):
    """`(poses, activations, weights, beta_u, beta_a) -> (mean, logits)` of the last iteration, flat."""
    count = len(problem.scales)

    def last(array, images):
        return array.reshape(images, count, -1)[:, -1]

    def route_out(*arrays):
        images = len(arrays[0])
        fit = forward(problem, _flat(arrays), images)
        return last(fit.mean, images), last(fit.logits, images), *fit

    def route_back(mean, logits, *arrays):
        inputs, fit = arrays[:5], Fit(*arrays[5:])
        gradients = backward(problem, _flat(inputs), fit, mean.ravel(), logits.ravel(), len(inputs[0]))
        return [
            # Gradients of what all images share come by chunks of images.
            gradient.reshape(-1, *array.shape).sum(axis=0)
            for gradient, array in zip(gradients, inputs, strict=True)
        ]

    @tf.custom_gradient
    def route(*inputs):
        mean, logits, *fit = tf.numpy_function(route_out, inputs, [tf.float32] * 9)

        def gradient(d_mean, d_logits):
            found = tf.numpy_function(route_back, [d_mean, d_logits, *inputs, *fit], [tf.float32] * 5)
            for value, like in zip(found, inputs, strict=True):
                value.set_shape(like.shape)
            return found

        return (mean, logits), gradient

    return route


def _flat(arrays):
    return Inputs(*(array.ravel() for array in arrays))
