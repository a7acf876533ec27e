"""Oracle of sparse capsules and their lifetime sparsity constraint, in NumPy float64.

Source: Rawlinson, Ahmed, Kowadlo, "Sparse Unsupervised Capsules Generalize Better", 2018: section 2.2 (routing
support), equations 1-4 (boosted rank and mask of each image), equations 5-7 (rank-0 frequencies) and Algorithm 1
(boosting). That the exponent of equation 3 is divided by L - 1, and the order in which children are grouped for the
maximum under "code": authors' code.

Written for obvious correctness: one loop per index of the paper.
"""

import math

import numpy as np


def routing_support(coefficients, grid, rule="paper"):
    """Sum over positions of the largest coefficient into each parent (section 2.2).

    psi_j = sum over x, y of max over p of c_xypj

    where:
        coefficients c[B, W * H * P, L] of the last iteration, P the fastest axis of the children; grid = (W, H, P)
        rule "code": the children are put in the order p, x, y first, and the maximum is over P neighbours in that
            order, which are mostly one type at many positions

    Returns psi[B, L].
    """
    width, height, types = grid
    num_images, num_children, num_parents = np.shape(coefficients)
    assert num_children == width * height * types
    support = np.zeros((num_images, num_parents))
    for k in range(num_images):
        for j in range(num_parents):
            if rule == "paper":
                for x in range(width):
                    for y in range(height):
                        here = [coefficients[k, (x * height + y) * types + p, j] for p in range(types)]
                        support[k, j] += max(here)
            else:
                in_order = [
                    coefficients[k, (x * height + y) * types + p, j]
                    for p in range(types)
                    for x in range(width)
                    for y in range(height)
                ]
                for start in range(0, num_children, types):
                    support[k, j] += max(in_order[start : start + types])
    return support


def ranks(support, boosts):
    """Rank of each capsule in each image, 0 for the largest z = psi * g (equations 1 and 2).

    Of equal capsules the one of lower index comes first.
    """
    result = np.zeros(np.shape(support), dtype=int)
    for k, row in enumerate(np.asarray(support, dtype=np.float64) * boosts):
        by_size = sorted(range(len(row)), key=lambda j, row=row: (-row[j], j))
        for rank, j in enumerate(by_size):
            result[k, j] = rank
    return result


def mask(rank, gamma=12.0):
    """m = exp(-gamma * r / (L - 1)), and zero where that is below 0.01 (equation 3 and section 2.2)."""
    num_capsules = np.shape(rank)[-1]
    result = np.zeros(np.shape(rank))
    for index, r in np.ndenumerate(rank):
        value = math.exp(-gamma * r / (num_capsules - 1))
        result[index] = value if value >= 0.01 else 0.0
    return result


def update(state, rank, frequencies=(0.04, 0.1), decay=0.99, step=0.1, every=50):
    """The state after one more training batch with these ranks[K, L] (equations 5-7 and Algorithm 1).

    f_j = share of the K images with r_j = 0
    mu_j = decay * mu_j + (1 - decay) * f_j, in the first batch f_j itself
    every `every` batches: g_j + step if mu_j < frequencies[0]; max(1, g_j - step) if mu_j > frequencies[1]

    where:
        state = dict of `boosts` g[L], `frequencies` mu[L] and `batches`, how many came before
    """
    batches = state["batches"] + 1
    boosts, averages = (
        np.array(state["boosts"], dtype=np.float64),
        np.array(state["frequencies"], dtype=np.float64),
    )
    for j in range(len(boosts)):
        f = np.mean([1.0 if r == 0 else 0.0 for r in rank[:, j]])
        averages[j] = f if batches == 1 else decay * averages[j] + (1 - decay) * f
        if batches % every == 0:
            if averages[j] < frequencies[0]:
                boosts[j] += step
            elif averages[j] > frequencies[1]:
                boosts[j] = max(1.0, boosts[j] - step)
    return {"boosts": boosts, "frequencies": averages, "batches": batches}
