"""Oracle of sparse iterative inference, in NumPy float64.

Source: Kiefer, Millidge, Tschantz, Buckley, "Capsule Networks as Generative Models", 2022: appendix B (the toy network)
and appendix C (capsule networks). That the penalty of the toy network is added once for each error term, that there
is an energy with a free output layer, and the numbers of steps and rates: authors' code.

Written for obvious correctness: every gradient is spelt out, no automatic differentiation, no epsilon but the stated
one.
"""

import numpy as np


def toy_energy(x, output_only=True, penalty=None):
    """Free energy of the hidden activities x[3] of the 3-3-1 network with W1 = identity and W2 = (1, 1, 1).

    e1 = x - input, e2 = x_1 + x_2 + x_3 - target
    F = e2^2 + R(x)                                  output_only
    F = e1 . e1 + R(x) + e2^2 + R(x)                 otherwise: the penalty comes with each error

    where:
        input = (-1, 5, 2), target = 2
        R(x) = 0, sum |x| (penalty "l1") or sum x^2 ("l2")
    """
    e1, e2 = x - np.array([-1.0, 5.0, 2.0]), np.sum(x) - 2.0
    regulariser = {None: 0.0, "l1": np.sum(np.abs(x)), "l2": np.sum(x**2)}[penalty]
    if output_only:
        return e2**2 + regulariser
    return np.sum(e1**2) + regulariser + e2**2 + regulariser


def toy_network(output_only=True, penalty=None, steps=500, rate=0.01):
    """The hidden activities x[3] after plain gradient descent from x = W1 input = (-1, 5, 2)."""
    bottom = np.array([-1.0, 5.0, 2.0])
    x = bottom.copy()
    for _ in range(steps):
        slope = {None: np.zeros(3), "l1": np.sign(x), "l2": 2 * x}[penalty]
        gradient = 2 * (np.sum(x) - 2.0) * np.ones(3) + slope
        if not output_only:
            gradient += 2 * (x - bottom) + slope
        x = x - rate * gradient
    return x


def squash(s, epsilon=0.0):
    """Shrink the vectors on the last axis: q / (1 + q) * s / sqrt(q + epsilon), q the squared length."""
    q = np.sum(s**2, axis=-1, keepdims=True)
    return s * q / (1 + q) / np.sqrt(q + epsilon)


def squash_pullback(s, e, epsilon=0.0):
    """The gradient of e . squash(s) by s, for the vectors on the last axis.

    h(q) e + 2 h'(q) (s . e) s,   h(q) = q / (1 + q) / sqrt(q + epsilon)
    """
    q = np.sum(s**2, axis=-1, keepdims=True)
    root = np.sqrt(q + epsilon)
    h = q / (1 + q) / root
    slope = 1 / (1 + q) ** 2 / root - 0.5 * q / (1 + q) / root**3
    return h * e + 2 * slope * np.sum(s * e, axis=-1, keepdims=True) * s


def energy_and_gradients(x, weights, scales, label, sparsity, output, epsilon):
    """The free energy of one image and its gradients, for a chain of capsule layers above a clamped first prediction.

    states: x_0 (clamped), x_1 ... x_K free; predictions p_l = squash(scale_l * sum_i x_(l-1)_i W_l_ij)
    output "predicted":  v = f_L(x_K), L = K + 1
        F = sum_(l <= K) |x_l - p_l|^2 + sum_j (|v_j| - y_j)^2 + eta sum_j |v_j|
    output "free":       v = x_K, L = K
        F = the same

    where:
        x = list of the free states, x[l] is [I_l, D_l]; x_0 is the first of the list and is clamped
        weights[l] = W [I, D, O, E] of each layer, scales[l] its factor
        label y [O], or None: then the label's term is absent
        |v| = sqrt(v . v + epsilon); squash carries the epsilon likewise

    Returns F and the list of gradients by x[1:], each spelt out by the chain rule.
    """
    free = len(x)
    inputs = [
        np.einsum("id,idoe->oe", x[layer], weights[layer]) * scales[layer] for layer in range(len(weights))
    ]
    predictions = [squash(s, epsilon) for s in inputs]
    assert len(weights) == (free if output == "predicted" else free - 1)
    gradients = [np.zeros_like(state) for state in x]
    energy = 0.0
    for layer in range(1, free):
        error = x[layer] - predictions[layer - 1]
        energy += np.sum(error**2)
        gradients[layer] += 2 * error
        # d p_l / d x_(layer-1), transposed, times -2 error
        back = squash_pullback(inputs[layer - 1], -2 * error, epsilon) * scales[layer - 1]
        gradients[layer - 1] += np.einsum("oe,idoe->id", back, weights[layer - 1])
    v = predictions[-1] if output == "predicted" else x[-1]
    norms = np.sqrt(np.sum(v**2, axis=-1) + epsilon)
    slope = sparsity * np.ones(len(v))
    energy += sparsity * np.sum(norms)
    if label is not None:
        energy += np.sum((norms - label) ** 2)
        slope = slope + 2 * (norms - label)
    of_output = slope[:, None] * v / norms[:, None]
    if output == "predicted":
        back = squash_pullback(inputs[-1], of_output, epsilon) * scales[-1]
        gradients[-1] += np.einsum("oe,idoe->id", back, weights[-1])
    else:
        gradients[-1] += of_output
    return energy, gradients[1:]
