"""The gradient of EM routing in closed form: its memory does not grow with the iterations.

Differentiating the loop step by step would keep several tensors of the size of the votes for each iteration. Here the
way back holds three of them at a time, and makes anew what it needs of each iteration from its parents.
"""

import keras
from keras import ops


def differentiable(routing, count):
    """`count` iterations of `routing`, a function of `votes, activations, beta_u, beta_a` with its own gradient.

    where:
      routing: an `EMRouting`, variant "paper" with logistic activations; it gives the steps.
      votes: `[I, O, D, N]`; activations: `[I, N]`; beta_u, beta_a: `[O]`.

    Returns mu_j `[O, D, N]` and x_j `[O, N]` of the last iteration.
    """

    @ops.custom_gradient
    def procedure(votes, activations, *betas):
        states = [routing.m_step(routing.uniform(votes), 0.0, votes, activations, betas, 0)]
        for t in range(1, count):
            coefficients = routing.e_step(states[-1], votes)
            states.append(routing.m_step(coefficients, states[-1]["mean"], votes, activations, betas, t))

        def gradient(*upstream):
            # JAX hands over the gradients of all results as one argument.
            d_mean, d_logits = upstream if len(upstream) == 2 else upstream[0]
            return _backward(routing, votes, activations, betas, states, d_mean, d_logits)

        return (states[-1]["mean"], states[-1]["logits"]), gradient

    return procedure


def _backward(routing, votes, activations, betas, states, d_mean, d_logits):
    """Gradients of votes, activations, beta_u and beta_a, from those of the last mu_j and x_j.

    Each M-step is three sums over children, of shares rho_ij = R_ij a_i: n_j, mu_j and var_j. A share has the gradient

        constant_j + sum_d (linear_j * (V_ij - mu_j) + square_j * (V_ij - mu_j)^2)

    and each E-step a softmax over all parents of a child, whose gradient h_ij goes to the parents before.
    """
    stacked = {name: ops.stack([state[name] for state in states]) for name in states[0]}

    def body(t, d_parents, sums):
        state, before = ({name: values[i] for name, values in stacked.items()} for i in (t, t - 1))
        share, d_share, d_activation, parts = _through_m_step(
            routing, state, t, votes, activations, betas, *d_parents
        )
        h = share * (d_share - routing.by_child(d_activation))
        *d_parents, d_votes_of_z = _through_e_step(h, votes, before)
        return (
            t - 1,
            d_parents,
            [total + part for total, part in zip(sums, (parts[0] - d_votes_of_z, *parts[1:]), strict=True)],
        )

    d_parents = [d_mean, ops.zeros_like(d_mean), d_logits]
    sums = [ops.zeros_like(value) for value in (votes, activations, *betas)]
    # A loop of the graph: unrolled, a compiler would find that the way out had the same differences, and keep them.
    last = ops.convert_to_tensor(len(states) - 1, dtype="int32")
    _, d_parents, sums = _one_at_a_time(lambda t, *_: t > 0, body, (last, d_parents, sums))
    *_, parts = _through_m_step(routing, states[0], 0, votes, activations, betas, *d_parents)
    return tuple(total + part for total, part in zip(sums, parts, strict=True))


def _through_m_step(routing, state, iteration, votes, activations, betas, *d_parents):
    """rho_ij and its gradient, both `[I, O, N]`; the gradient of a_i, `[I, 1, N]`; gradients of the inputs."""
    constant, linear, square, d_betas = _share_gradient(routing, state, betas, iteration, *d_parents)
    share = state["coefficients"] * ops.expand_dims(activations, 1)
    deviation = votes - state["mean"]
    d_share = constant + ops.sum(deviation * (linear + square * deviation), axis=2)
    d_votes = ops.expand_dims(share, 2) * (linear + 2.0 * square * deviation)
    d_activation = ops.sum(state["coefficients"] * d_share, axis=1, keepdims=True)
    return share, d_share, d_activation, (d_votes, d_activation[:, 0], *d_betas)


def _share_gradient(routing, state, betas, iteration, d_mean, d_variance, d_logits):
    """`constant[O, N]`, `linear[O, D, N]` and `square[O, D, N]` of an M-step, and gradients of beta_u and beta_a."""
    mean, variance, mass = state["mean"], state["variance"], ops.expand_dims(state["mass"], 1)
    dimensions = mean.shape[1]
    d_logits = d_logits * routing.temperature(ops.cast(iteration, d_logits.dtype))
    d_cost = -d_logits * state["mass"]
    cost = dimensions * ops.expand_dims(betas[0], 1) + ops.sum(ops.log(variance), axis=1) / 2.0
    square = (d_variance + ops.expand_dims(d_cost, 1) / (2.0 * variance)) / mass
    # The floor of the mass keeps deviations from adding up to zero.
    linear = (d_mean - 2.0 * routing.mass_floor * square * mean) / mass
    constant = -d_logits * cost - ops.sum(square * (variance - routing.variance_floor), axis=1)
    return constant, linear, square, (dimensions * ops.sum(d_cost, axis=1), ops.sum(d_logits, axis=1))


def _through_e_step(h, votes, state):
    """Gradients of the mean, variance and logits of `state`, of whose z_ij `h` is the gradient; and h * dz/dV."""
    precision = 1.0 / state["variance"]
    deviation = votes - state["mean"]
    d_votes_of_z = ops.expand_dims(h, 2) * deviation
    density = ops.sum(h, axis=0)
    second = ops.sum(d_votes_of_z * deviation, axis=0)
    d_variance = (second * precision - ops.expand_dims(density, 1)) * precision / 2.0
    d_logits = density * ops.sigmoid(-state["logits"])
    return ops.sum(d_votes_of_z, axis=0) * precision, d_variance, d_logits, d_votes_of_z * precision


def _one_at_a_time(condition, body, start):
    """`ops.while_loop`; TensorFlow would else begin ten iterations at once where their data allow it."""
    if keras.backend.backend() != "tensorflow":
        return ops.while_loop(condition, body, start)
    import tensorflow as tf

    return tf.while_loop(condition, body, start, parallel_iterations=1)
