"""Connectionist routing: a recurrent cell for every pair of child and parent."""

import itertools

import keras
from keras import ops

from capszoo.routing.base import as_tensors
from capszoo.routing.consensus import _ConsensusRouting


@keras.saving.register_keras_serializable(package="capszoo")
class LSTMRouting(_ConsensusRouting):
    """Lets an LSTM cell and two small networks decide which votes count and whether the parent is there.

        c_ij = 1 / I, mu_j = sum_i c_ij * V_ij, h_ij = s_ij = 0                        # Algorithm 1
        repeat num_iterations times:
            h_ij, s_ij = lstm([mu_j, a_i, V_ij, c_ij], h_ij, s_ij)                     # Algorithm 2
            c_ij = softmax_i( f_c(h_ij) )
            mu_j = sum_i c_ij * V_ij
        a_j = 1 / (1 + exp(-f_a( sum_i c_ij * s_ij )))                                 # equation 14

    where:
      V_ij: `votes[B, ..., I, O, D]`; a_i: `activations[B, ..., I]`, in [0, 1].
      c_ij: coefficients `[B, ..., I, O]`, in [0, 1]; they sum to one over the children of each parent.
      mu_j: parent poses `[B, ..., O, D]`; a_j: parent activations `[B, ..., O]`.
      h_ij, s_ij: hidden and cell state, `units` numbers (U) for each pair; zero for every image at first.
      lstm: `kernel[2 D + 2, 4 U]` for the input in the order above, `recurrent_kernel[U, 4 U]`, `bias[4 U]`; gates
        in the order input, forget, candidate, output. One cell for all pairs and positions. Along D the layers of
        matrix capsules list a pose column by column, and so are the rows of `kernel` for mu_j and V_ij.
      f_c, f_a: ReLU layers of the sizes `compatibility` and `activation`, then one linear unit:
        `compatibility_kernel1`, `compatibility_bias1`, ...
      num_iterations: updates of the coefficients after the uniform ones.
      state_roles: "paper" as above, or "code": f_c takes s_ij and f_a takes sum_i c_ij * h_ij.

    A product of the kernel with the input is a sum of products: with V_ij and a_i once for all iterations, with mu_j
    once per parent, and only with c_ij and h_ij for each pair and iteration. Of the gates, four numbers per unit and
    pair, that first sum is kept; those of an iteration are computed again for the gradient, which on TensorFlow
    therefore has no gradient of its own.

    Errors: `ValueError` for units below one, for other state_roles, for votes of rank below 4, for missing activations
    and ones of another shape, and see `Routing`.
    Source: Faria 2019, section 4.2, Algorithm 2, equation 14; "code" is what the author's code computes, which takes
    TensorFlow's pair of states in the opposite order. Initial weights: He's before a ReLU, orthogonal ones of the
    recurrent kernel, else Glorot's; a forget gate that is open by 1.
    The last bias of f_c is in the paper's count of parameters; a softmax does not feel it.
    """

    def __init__(
        self, units=16, compatibility=(), activation=(), state_roles="paper", num_iterations=3, **kwargs
    ):
        super().__init__(num_iterations=num_iterations, **kwargs)
        if units < 1:
            raise ValueError(f"units must be at least 1. Received: {units!r}")
        if state_roles not in ("paper", "code"):
            raise ValueError(f"state_roles must be 'paper' or 'code'. Received: {state_roles!r}")
        self.units = units
        self.compatibility = tuple(compatibility)
        self.activation = tuple(activation)
        self.state_roles = state_roles

    def build(self, votes_shape):
        super().build(votes_shape)
        units, dimensions = self.units, votes_shape[-1]
        self.kernel = self.add_weight(name="kernel", shape=(2 * dimensions + 2, 4 * units))
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(units, 4 * units), initializer="orthogonal"
        )
        self.bias = self.add_weight(name="bias", shape=(4 * units,), initializer=_open_forget_gate)
        self.compatibility_weights = self._network("compatibility", self.compatibility)
        self.activation_weights = self._network("activation", self.activation)

    def _network(self, name, hidden):
        """Weights of a network from `units` numbers to one: kernel, bias, kernel, bias, ..."""
        widths, weights = (self.units, *hidden, 1), []
        for number, shape in enumerate(itertools.pairwise(widths), start=1):
            initializer = "he_normal" if number <= len(hidden) else "glorot_uniform"
            weights.append(
                self.add_weight(name=f"{name}_kernel{number}", shape=shape, initializer=initializer)
            )
            weights.append(self.add_weight(name=f"{name}_bias{number}", shape=shape[1:], initializer="zeros"))
        return weights

    def _memory(self, votes, activations):
        """What votes and activations add to all gates, `[4 U, N, O, I]`; the states, zero at first, are left out."""
        depth = votes.shape[3]
        # Rows of the kernel are pose, activation, vote, coefficient.
        of_activation, of_vote = self.kernel[depth : depth + 1], self.kernel[depth + 1 : -1]
        # [N, I] -> [1, N, 1, I]
        child = ops.expand_dims(activations, 1)[None]
        return {"gates": _linear_in_last(votes, of_vote) + _linear(child, of_activation, self.bias)}

    def _logits(self, state, votes, activations):
        if "cell" in state:
            cells, names = self._cells, ("gates", "poses", "coefficients", "hidden", "cell")
        else:
            cells, names = self._first_cells, ("gates", "poses")
        # What is computed again in the gradient must get all it depends on as arguments.
        weights = as_tensors([self.kernel, self.recurrent_kernel, *self.compatibility_weights])
        logits, hidden, cell = keras.remat(cells)(*(state[name] for name in names), *weights)
        return logits, {"hidden": hidden, "cell": cell, "gates": state["gates"]}

    def _first_cells(self, gates, poses, kernel, recurrent_kernel, *network):
        """The first step of all cells: states are zero and coefficients uniform. Returns as `_cells`."""
        uniform = ops.reshape(kernel[-1] / gates.shape[3], (-1, 1, 1, 1))
        # Nothing is added to the forget gate, which has no state to multiply: a fourth of the time of this sum.
        pairs, parents = ops.split(gates, 4), ops.split(uniform + _of_poses(poses, kernel), 4)
        input_gate, candidate, output_gate = (pairs[k] + parents[k] for k in (0, 2, 3))
        return self._after(ops.sigmoid(input_gate) * ops.tanh(candidate), output_gate, network)

    def _cells(self, gates, poses, coefficients, hidden, cell, kernel, recurrent_kernel, *network):
        """One step of all cells: logits `[N, O, I]` and both new states `[U, N, O, I]`."""
        of_pair = ops.concatenate([kernel[-1:], recurrent_kernel], axis=0)
        pair = ops.concatenate([coefficients[None], hidden], axis=0)
        gates = gates + _linear(pair, of_pair) + _of_poses(poses, kernel)
        input_gate, forget_gate, candidate, output_gate = ops.split(gates, 4)
        cell = ops.sigmoid(forget_gate) * cell + ops.sigmoid(input_gate) * ops.tanh(candidate)
        return self._after(cell, output_gate, network)

    def _after(self, cell, output_gate, network):
        hidden = ops.sigmoid(output_gate) * ops.tanh(cell)
        return _perceptron(hidden if self.state_roles == "paper" else cell, network), hidden, cell

    @property
    def fusible(self):
        return True

    def fused(self, connections, count):
        """See `Routing.fused`."""
        from capszoo.routing.cpu.recurrent_operation import fused_lstm

        route = fused_lstm(connections, count, self.state_roles == "code")
        cell = self.kernel, self.recurrent_kernel, self.bias
        networks = [
            [ops.convert_to_tensor(weight) for weight in network]
            for network in (self.compatibility_weights, self.activation_weights)
        ]
        cell = [ops.convert_to_tensor(weight) for weight in cell]
        return lambda poses, activations, matrices: route(poses, activations, matrices, cell, *networks)

    def finish(self, state, votes, activations):
        final = state["cell" if self.state_roles == "paper" else "hidden"]
        combined = ops.sum(state["coefficients"] * final, axis=3)
        return state["poses"], ops.sigmoid(_perceptron(combined, self.activation_weights))

    def shift(self, amount):
        """Adds `amount` to the logits of all activations, equation 14."""
        bias = self.activation_weights[-1]
        bias.assign(bias + amount)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "compatibility": self.compatibility,
            "activation": self.activation,
            "state_roles": self.state_roles,
        }


def _linear(features, kernel, bias=None):
    """`[..below, ...] -> [above, ...]`: one product for all pairs; `kernel` is `[below, above]`."""
    flat = ops.reshape(features, (kernel.shape[0], -1))
    product = ops.matmul(ops.transpose(kernel), flat)
    if bias is not None:
        product = product + ops.expand_dims(bias, 1)
    return ops.reshape(product, (kernel.shape[1], *ops.shape(features)[1:]))


def _linear_in_last(features, kernel):
    """`[..., below] -> [above, ...]`, without moving an axis; `kernel` is `[below, above]`."""
    flat = ops.reshape(features, (-1, kernel.shape[0]))
    product = ops.matmul(ops.transpose(kernel), ops.transpose(flat))
    return ops.reshape(product, (kernel.shape[1], -1, *features.shape[1:-1]))


def _of_poses(poses, kernel):
    """What poses `[N, O, D]` add to all gates, `[4 U, N, O, 1]`."""
    return ops.expand_dims(_linear_in_last(poses, kernel[: poses.shape[2]]), 3)


def _perceptron(features, weights):
    """ReLU layers and a linear one: features `[U, ...]` -> `[...]`; `weights` is kernel, bias, kernel, bias, ..."""
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for kernel, bias in layers[:-1]:
        features = ops.relu(_linear(features, kernel, bias))
    return _linear(features, *layers[-1])[0]


def _open_forget_gate(shape, dtype=None):
    """Zero for all gates but the second, the forget gate: one."""
    units = shape[0] // 4
    return ops.concatenate([ops.zeros(units, dtype), ops.ones(units, dtype), ops.zeros(2 * units, dtype)])
