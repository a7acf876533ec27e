"""Oracle of Heinsen's routing, in NumPy float64.

Source: Heinsen, "An algorithm for routing capsules in all domains", 2019, Algorithm 1: in each iteration an E-step (of
uniform coefficients in the first), a D-step, which divides the data of each child into what a parent uses and what it
ignores, and an M-step. The epsilons are those of the author's code.

Written for obvious correctness: one loop per index of the paper.
"""

import numpy as np
from scipy.special import log_expit, logsumexp


def heinsen_votes(poses, matrices, bias):
    """V_ij = M_i W_ij + B_ij, listed row by row: [B, I, O, rows * columns].

    where:
      poses: M_i [B, I, rows, width]; matrices: W_ij [I or 1, O, width, columns]; bias: B_ij [I or 1, O, rows, columns].
    """
    children, parents = poses.shape[1], matrices.shape[1]
    votes = [
        [
            [image[i] @ matrices[i % len(matrices)][j] + bias[i % len(bias)][j] for j in range(parents)]
            for i in range(children)
        ]
        for image in np.asarray(poses, "float64")
    ]
    return np.reshape(votes, (len(poses), children, parents, -1))


def log_density(vote, mean, variance):
    """The logarithm of a Gaussian's density, less what all parents have in common."""
    return sum(
        -((vote[h] - mean[h]) ** 2) / (2 * variance[h]) - np.log(np.sqrt(variance[h]))
        for h in range(len(vote))
    )


def e_step(votes, parents):
    """Coefficients [I, O]: a softmax over parents of ln f(a_out) + ln p(vote), of one image's votes [I, O, D]."""
    coefficients = np.zeros(votes.shape[:2])
    for i in range(votes.shape[0]):
        weights = [
            log_expit(parent["logit"]) + log_density(votes[i, j], parent["mean"], parent["variance"])
            for j, parent in enumerate(parents)
        ]
        coefficients[i] = np.exp(np.array(weights) - logsumexp(weights))
    return coefficients


def d_and_m_step(votes, data, beta_use, beta_ignore, epsilon):
    """One parent of votes[I, D] and of data[I, 2], what it uses and ignores of each child; betas [I]."""
    used, ignored = data[:, 0], data[:, 1]
    logit = sum(beta_use * used) - sum(beta_ignore * ignored)
    total = sum(used) + epsilon
    mean = sum(used[i] * votes[i] for i in range(len(votes))) / total
    variance = sum(used[i] * (votes[i] - mean) ** 2 for i in range(len(votes))) / total + epsilon
    return {"logit": logit, "mean": mean, "variance": variance}


def heinsen_routing(votes, logits, beta_use, beta_ignore, num_iterations=3, epsilon=1e-5):
    """Route votes[B, I, O, D] of children with activations f(logits)[B, I], f being the logistic function.

    where:
      beta_use, beta_ignore: [I, O], or [1, O] where children share them.

    Returns poses [B, O, D], logits [B, O], variances [B, O, D] and coefficients [T, B, I, O], one for each iteration.
    """
    votes, logits = np.asarray(votes, "float64"), np.asarray(logits, "float64")
    children, num_parents = votes.shape[1:3]
    beta_use, beta_ignore = (
        np.broadcast_to(np.asarray(beta, "float64"), (children, num_parents))
        for beta in (beta_use, beta_ignore)
    )
    images, history = [], []
    for image, activations in zip(votes, np.exp(log_expit(logits)), strict=True):
        parents, coefficients = None, []
        for iteration in range(num_iterations):
            uniform = np.full((children, num_parents), 1 / num_parents)
            coefficients.append(uniform if iteration == 0 else e_step(image, parents))
            parents = []
            for j in range(num_parents):
                used = activations * coefficients[-1][:, j]
                data = np.stack([used, activations - used], axis=1)
                parents.append(d_and_m_step(image[:, j], data, beta_use[:, j], beta_ignore[:, j], epsilon))
        images.append(parents)
        history.append(coefficients)
    collected = {
        name: np.array([[parent[key] for parent in parents] for parents in images])
        for name, key in (("poses", "mean"), ("logits", "logit"), ("variances", "variance"))
    }
    return {**collected, "coefficients": np.swapaxes(np.array(history), 0, 1)}
