"""Oracle of connectionist routing, in NumPy float64.

Source: Faria, "Learning to compute inner consensus", 2019, Algorithms 1 and 2, section 4.2, equation 14, Table 2.
The cell is that of Hochreiter and Schmidhuber with a forget gate; the order of its input (pose, activation, vote,
coefficient) is the paper's. Which of hidden and cell state goes where: the paper's text, or the author's code, in
which the two are swapped.

Written for obvious correctness: one cell at a time, its input concatenated.
"""

import numpy as np


def logistic(x):
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def softmax(logits):
    """exp(x_i) / sum_l exp(x_l) of a vector."""
    weights = np.exp(logits - np.max(logits))
    return weights / np.sum(weights)


def lstm_cell(inputs, hidden, cell, kernel, recurrent_kernel, bias):
    """One step of an LSTM cell with U units; returns (hidden[U], cell[U]).

    where:
        kernel[len(inputs), 4 U], recurrent_kernel[U, 4 U], bias[4 U] = the gates input, forget, candidate, output
    """
    gates = inputs @ kernel + hidden @ recurrent_kernel + bias
    enter, forget, candidate, leave = np.split(gates, 4)
    cell = logistic(forget) * cell + logistic(enter) * np.tanh(candidate)
    return logistic(leave) * np.tanh(cell), cell


def network(features, layers):
    """A number out of features[U]: ReLU layers, then one linear unit; layers = [(kernel, bias), ...]."""
    for kernel, bias in layers[:-1]:
        features = np.maximum(features @ kernel + bias, 0.0)
    kernel, bias = layers[-1]
    return (features @ kernel + bias).item()


def lstm_routing(
    votes, activations, cell_weights, compatibility, activation, num_iterations=3, state_roles="paper"
):
    """Route votes[B, I, O, D] of children with activations[B, I] by Algorithm 1 with Algorithm 2.

    where:
        cell_weights = (kernel, recurrent_kernel, bias) of `lstm_cell`
        compatibility, activation = the layers of the two networks, as in `network`
        num_iterations = T, the updates of the coefficients after the uniform ones
        state_roles = "paper": hidden states make coefficients and cell states the activation; "code": swapped

    Returns a dict: `poses` [B, O, D], `activations` [B, O] and `coefficients`, the c[B, I, O] of each iteration.
    """
    votes = np.asarray(votes, dtype=np.float64)
    activations = np.asarray(activations, dtype=np.float64)
    images, children, parents, depth = votes.shape
    units = cell_weights[1].shape[0]
    poses, outputs = np.zeros((images, parents, depth)), np.zeros((images, parents))
    history = np.zeros((num_iterations, images, children, parents))
    for b in range(images):
        for j in range(parents):
            own = votes[b, :, j]  # [I, D]
            coefficients = np.full(children, 1.0 / children)
            pose = coefficients @ own
            hidden, cell = np.zeros((children, units)), np.zeros((children, units))
            for t in range(num_iterations):
                logits = np.zeros(children)
                for i in range(children):
                    inputs = np.concatenate([pose, [activations[b, i]], own[i], [coefficients[i]]])
                    hidden[i], cell[i] = lstm_cell(inputs, hidden[i], cell[i], *cell_weights)
                    logits[i] = network(hidden[i] if state_roles == "paper" else cell[i], compatibility)
                coefficients = softmax(logits)
                pose = coefficients @ own
                history[t, b, :, j] = coefficients
            combined = coefficients @ (cell if state_roles == "paper" else hidden)
            poses[b, j], outputs[b, j] = pose, logistic(network(combined, activation))
    return {"poses": poses, "activations": outputs, "coefficients": list(history)}
