"""Probabilistic generative capsules (Smith, Schut, Gal and van der Wilk 2020) in NumPy, float64, one image at a time.

Written from the paper's equations 1-7, section 2.1 and appendix A. Poses are full affine matrices `[2, 3]` for parts,
and deviations from the identity for objects. Index 0 of the parents is the clutter.
"""

import itertools

import numpy as np

IDENTITY = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def log_normal(x, mean, deviation):
    """log N(x; mean, deviation^2), summed over all entries."""
    z = (x - mean) / deviation
    return np.sum(-0.5 * z**2 - np.log(deviation * np.ones_like(z)) - 0.5 * np.log(2 * np.pi))


def log_concrete(presence, logit, temperature):
    """Log density of the binary concrete distribution at `presence` in (0, 1) (Maddison et al. 2016, equation 13)."""
    alpha = np.exp(logit)
    above = temperature * alpha * presence ** (-temperature - 1) * (1 - presence) ** (-temperature - 1)
    below = alpha * presence**-temperature + (1 - presence) ** -temperature
    return np.log(above / below**2)


def log_concrete_logit(logit_of_presence, logit, temperature):
    """The same variable's density as that of its logit: multiplied by dt / dlogit = t (1 - t)."""
    presence = sigmoid(logit_of_presence)
    return log_concrete(presence, logit, temperature) + np.log(presence * (1 - presence))


def square(pose):
    """`[2, 3]` as the homogeneous `[3, 3]`."""
    return np.vstack([pose, [0.0, 0.0, 1.0]])


def selection_probabilities(presences, affinities, clutter):
    """Equation 3 for one part: `[objects + 1]`, clutter first."""
    weights = np.concatenate([[clutter], affinities * presences])
    return weights / weights.sum()


def part_given_parent(parent, pose, logit, object_poses, weights, part, constants):
    """log p(t_j, A_j | s_j = parent), equations 4 to 6, with t_j between off and on: a geometric mean of both."""
    presence = sigmoid(logit)
    if parent == 0:
        mean, deviation = IDENTITY, constants["clutter_deviation"]
    else:
        offset = weights["offsets"][part, parent - 1]
        mean = ((np.eye(3) + np.vstack([object_poses[parent - 1], np.zeros(3)])) @ square(offset))[:2]
        deviation = weights["deviations"][part, parent - 1]
    on = log_normal(pose, mean, deviation)
    off = log_normal(pose, IDENTITY, constants["off_deviation"])
    presence_term = log_concrete_logit(
        logit, weights["presence_logits"][part, parent], constants["temperature"]
    )
    return presence_term + presence * on + (1 - presence) * off


def log_parts(object_poses, object_logits, part_poses, part_logits, weights, constants):
    """Equation 9 for each part, with s_j summed out; and p(s_j | everything), `[parts, 1 + objects]`."""
    totals, coefficients = [], []
    for part, (pose, logit) in enumerate(zip(part_poses, part_logits, strict=True)):
        shares = selection_probabilities(
            sigmoid(object_logits), weights["affinities"][part], constants["clutter"]
        )
        joint = [
            share * np.exp(part_given_parent(parent, pose, logit, object_poses, weights, part, constants))
            for parent, share in enumerate(shares)
        ]
        totals.append(np.log(np.sum(joint)))
        coefficients.append(np.array(joint) / np.sum(joint))
    return np.array(totals), np.array(coefficients)


def log_parts_brute_force(object_poses, object_logits, part_poses, part_logits, weights, constants):
    """log p(t^1, A^1 | t^0, A^0): the sum over all (1 + objects)^parts selections together. For small nets."""
    shares = [
        selection_probabilities(sigmoid(object_logits), row, constants["clutter"])
        for row in weights["affinities"]
    ]
    total = 0.0
    for selection in itertools.product(range(1 + len(object_poses)), repeat=len(part_poses)):
        log_joint = 0.0
        for part, parent in enumerate(selection):
            log_joint += np.log(shares[part][parent])
            log_joint += part_given_parent(
                parent, part_poses[part], part_logits[part], object_poses, weights, part, constants
            )
        total += np.exp(log_joint)
    return np.log(total)


def log_objects(poses, logits, constants):
    """Equations 1 and 2."""
    prior = np.log(constants["presence"]) - np.log(1 - constants["presence"])
    presences = sum(log_concrete_logit(logit, prior, constants["temperature"]) for logit in logits)
    return presences + log_normal(poses, 0.0, 1.0)


def warp(template, pose, size, template_size):
    """A template `[h, w]` drawn on a canvas of `size`, bilinearly, black outside: an explicit loop over pixels.

    `pose` takes a point of the template to the canvas; both have their origin in the middle and the unit of half
    the template's width.
    """
    unit = template_size / 2
    inverse = np.linalg.inv(square(pose))
    canvas = np.zeros(size)
    for row in range(size[0]):
        for column in range(size[1]):
            point = np.array([(column - (size[1] - 1) / 2) / unit, (row - (size[0] - 1) / 2) / unit, 1.0])
            x, y, _ = inverse @ point
            x, y = x * unit + (template_size - 1) / 2, y * unit + (template_size - 1) / 2
            for v in range(template_size):
                for u in range(template_size):
                    canvas[row, column] += max(0, 1 - abs(x - u)) * max(0, 1 - abs(y - v)) * template[v, u]
    return canvas


def over(colour_a, alpha_a, colour_b, alpha_b):
    """The operator `over` of section 2.1, with colours that are not multiplied by alpha; 0 / 0 is black."""
    alpha = alpha_a + alpha_b * (1 - alpha_a)
    colour = colour_a * alpha_a + colour_b * alpha_b * (1 - alpha_a)
    return np.divide(colour, alpha, out=np.zeros_like(colour), where=alpha > 0), alpha


def render(templates, alphas, poses, presences, size):
    """`alpha_compositing` of section 2.1 on an opaque black canvas: `[H, W]`, the mean of equation 7.

    A template's alpha is multiplied by its own presence.
    """
    picture, opacity = np.zeros(size), np.ones(size)
    for template, alpha, pose, presence in zip(templates, alphas, poses, presences, strict=True):
        drawn_alpha = presence * warp(alpha, pose, size, len(alpha))
        colour = warp(template, pose, size, len(template))
        picture, opacity = over(colour, drawn_alpha, picture, opacity)
    return picture


def bound(image, sample, posterior, weights, constants):
    """One sample's estimate of the evidence lower bound (appendix A), with Delta posteriors of the poses.

    where:
      sample: `object_poses`, `object_logits`, `part_poses`, `part_logits` (logits of the relaxed presences).
      posterior: `object_logits` and `part_logits` of q.
    """
    parts = log_parts(
        sample["object_poses"],
        sample["object_logits"],
        sample["part_poses"],
        sample["part_logits"],
        weights,
        constants,
    )[0].sum()
    objects = log_objects(sample["object_poses"], sample["object_logits"], constants)
    log_q = sum(
        log_concrete_logit(value, logit, constants["temperature"])
        for which in ("object_logits", "part_logits")
        for value, logit in zip(sample[which], posterior[which], strict=True)
    )
    picture = render(
        weights["templates"],
        weights["alphas"],
        sample["part_poses"],
        sigmoid(sample["part_logits"]),
        image.shape,
    )
    return log_normal(image, picture, constants["pixel_deviation"]) + parts + objects - log_q
