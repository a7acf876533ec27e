"""Stacked capsule autoencoders (Kosiorek, Sabour, Teh, Hinton 2019) in NumPy, float64, one image at a time.

Written from the paper's sections 2.1 to 2.4; how six numbers make a pose, and the clutter ("dummy" component), from the
authors' description of their experiments. Poses are affine matrices `[2, 3]`. Index 0 of the owners of a part is the
clutter.
"""

import numpy as np

from oracles.probabilistic_capsules import sigmoid, square


def log_sum_exp(values):
    values = np.asarray(values, "float64")
    highest = values.max()
    return highest + np.log(np.sum(np.exp(values - highest)))


def softplus(x):
    return np.logaddexp(0.0, x)


def pose(numbers):
    """`[2, 3]` of six numbers: scales along x and y, an angle, a shear, translations along x and y."""
    scale_x, scale_y = sigmoid(np.asarray(numbers[:2], "float64")) + 0.01
    angle = 2 * np.pi * numbers[2]
    shear, x, y = np.tanh(5 * np.asarray(numbers[3:], "float64"))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    stretch = np.array([[scale_x, shear * scale_y], [0.0, scale_y]])
    return np.column_stack([stretch @ turn, [x, y]])


def vote(object_pose, offset):
    """V = OV OP: where an object says that a part is, section 2.1."""
    return (square(object_pose) @ square(offset))[:2]


def deviation(width):
    return softplus(width + 0.5) + 0.01


def log_owners(part_pose, votes, log_presences, widths, clutter, clutter_density):
    """log p(owner) p(x_m | owner) for the clutter and each object, `[1 + K]`; shares of all owners add up to one."""
    weights = np.concatenate([[np.log(clutter)], log_presences])
    shares = weights - log_sum_exp(weights)
    densities = [np.log(clutter_density)]
    for mean, width in zip(votes, widths, strict=True):
        z = (part_pose - mean) / deviation(width)
        densities.append(np.sum(-0.5 * z**2 - np.log(deviation(width)) - 0.5 * np.log(2 * np.pi)))
    return shares + densities


def parts_given_objects(
    part_poses, part_presence, votes, log_presences, widths, clutter=0.01, clutter_density=0.01
):
    """d_m log p(x_m) of each part, and the posterior of its owner, `[M]` and `[M, 1 + K]`; section 2.3.

    where:
        votes `[K, M, 2, 3]`, log_presences = log a_k a_km `[K, M]`, widths `[K, M]`.
    """
    densities, owners = [], []
    for m, (x, d) in enumerate(zip(part_poses, part_presence, strict=True)):
        joint = log_owners(x, votes[:, m], log_presences[:, m], widths[:, m], clutter, clutter_density)
        densities.append(d * log_sum_exp(joint))
        owners.append(np.exp(joint - log_sum_exp(joint)))
    return np.array(densities), np.array(owners)


def draw(template, part_pose, size):
    """A template `[S, S]` on a canvas of `size`, bilinearly, zero outside: an explicit loop over pixels.

    Both have their origin in the middle and the unit of half their own extent, between the middles of the outermost
    pixels: the identity stretches a template over the canvas.
    """
    side = len(template)
    inverse = np.linalg.inv(square(part_pose))
    canvas = np.zeros(size)
    for row, column in np.ndindex(*size):
        point = [2 * column / (size[1] - 1) - 1, 2 * row / (size[0] - 1) - 1, 1.0]
        u, v, _ = (inverse @ point + 1) * (side - 1) / 2
        for y, x in np.ndindex(side, side):
            canvas[row, column] += max(0, 1 - abs(u - x)) * max(0, 1 - abs(v - y)) * template[y, x]
    return canvas


def pixels_given_parts(image, part_poses, log_presence, templates, alphas, colours, background, deviation):
    """log p(y_ij) of each pixel, and the mean of each, `[H, W]`; section 2.2, for one channel.

    where:
        templates, alphas: `[M, S, S]`; colours `[M]`; log_presence = log d_m `[M]`.
        deviation: of a pixel; background: its grey and the logit of its share.
    """
    layers = list(zip(templates, alphas, colours, part_poses, log_presence, strict=True))
    means = [colour * draw(template, x, image.shape) for template, _, colour, x, _ in layers]
    logits = [draw(alpha, x, image.shape) + log for _, alpha, _, x, log in layers]
    densities, expected = np.zeros(image.shape), np.zeros(image.shape)
    for i, j in np.ndindex(*image.shape):
        greys = np.array([mean[i, j] for mean in means] + [background[0]])
        weights = np.array([logit[i, j] for logit in logits] + [background[1]])
        shares = weights - log_sum_exp(weights)
        normal = -0.5 * ((image[i, j] - greys) / deviation) ** 2 - np.log(deviation * np.sqrt(2 * np.pi))
        densities[i, j] = log_sum_exp(shares + normal)
        expected[i, j] = np.exp(shares) @ greys
    return densities, expected


def entropy(shares):
    return -sum(p * np.log(p) for p in shares if p > 0)


def prior_sparsity(presence, classes):
    """Within each image and between images, of presences `[B, K]`; section 2.4."""
    images, objects = presence.shape
    within = np.mean([(row.sum() - objects / classes) ** 2 for row in presence])
    between = np.mean([(column.sum() - images / classes) ** 2 for column in presence.T])
    return within, between


def posterior_sparsity(explained):
    """Mean entropy within each image, and that of all images together, of what objects explain `[B, K]`."""
    within = np.mean([entropy(row / row.sum()) for row in explained])
    total = explained.sum(axis=0)
    return within, entropy(total / total.sum())
