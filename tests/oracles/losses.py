"""Oracles of the losses, in NumPy float64.

Source: margin loss and reconstruction loss: Sabour, Frosst, Hinton, "Dynamic Routing Between Capsules", 2017,
equation 4 and section 4.1. Spread loss: Hinton, Sabour, Frosst, "Matrix Capsules with EM Routing", 2018,
equation 3. The "official" scalings and the sigmoid margin schedule: the authors' code of each paper.
"""

import math

import numpy as np

SCALINGS = ("paper", "official")


def _check_scaling(scaling):
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {SCALINGS}. Received: {scaling!r}")


def margin_loss(lengths, targets, scaling="paper", m_plus=0.9, m_minus=0.1, down_weight=0.5):
    """Make present classes long and absent classes short (Sabour et al., equation 4).

    L_k = T_k * max(0, m_plus - |v_k|)^2 + down_weight * (1 - T_k) * max(0, |v_k| - m_minus)^2

    where:
        |v_k| = lengths[B, C]; T_k = targets[B, C], 1 for each class present and 0 otherwise
        scaling "paper": sum over the classes, mean over the batch
        scaling "official": each term times 1/2, mean over the batch and the classes
    """
    _check_scaling(scaling)
    lengths = np.asarray(lengths, dtype=np.float64)
    targets = np.asarray(targets, dtype=np.float64)
    num_images, num_classes = lengths.shape
    total = 0.0
    for b in range(num_images):
        for k in range(num_classes):
            present = max(0.0, m_plus - lengths[b, k]) ** 2
            absent = max(0.0, lengths[b, k] - m_minus) ** 2
            total += targets[b, k] * present + down_weight * (1.0 - targets[b, k]) * absent
    if scaling == "official":
        return 0.5 * total / (num_images * num_classes)
    return total / num_images


def reconstruction_loss(images, reconstructions, weight=0.0005):
    """Weight times the sum of squared pixel errors of each image, averaged over the batch (section 4.1)."""
    images = np.asarray(images, dtype=np.float64)
    reconstructions = np.asarray(reconstructions, dtype=np.float64)
    if images.shape != reconstructions.shape:
        raise ValueError(
            "images and reconstructions must have the same shape. "
            f"Received: {images.shape}, {reconstructions.shape}"
        )
    total = 0.0
    for image, reconstruction in zip(images, reconstructions, strict=True):
        total += np.sum((image - reconstruction) ** 2)
    return weight * total / len(images)


def spread_loss(activations, labels, margin, scaling="paper"):
    """Keep each wrong class's activation at least `margin` below the right one's (Hinton et al., equation 3).

    L = sum over i != t of max(0, margin - (a_t - a_i))^2

    where:
        a = activations[B, C]; t = labels[B], the index of the right class
        scaling "paper": sum over the wrong classes, mean over the batch
        scaling "official": mean over the batch and over all C classes, the right one counting as zero
    """
    _check_scaling(scaling)
    activations = np.asarray(activations, dtype=np.float64)
    num_images, num_classes = activations.shape
    total = 0.0
    for b in range(num_images):
        right = activations[b, labels[b]]
        for i in range(num_classes):
            if i != labels[b]:
                total += max(0.0, margin - (right - activations[b, i])) ** 2
    if scaling == "official":
        return total / (num_images * num_classes)
    return total / num_images


def official_margin(step):
    """The margin of the authors' code: 0.2 + 0.79 * sigmoid(min(10, step / 50000 - 4))."""
    return 0.2 + 0.79 / (1.0 + math.exp(-min(10.0, step / 50000.0 - 4.0)))


def linear_margin(step, num_steps, start=0.2, end=0.9):
    """The margin of the paper: linearly from `start` at step 0 to `end` at `num_steps`, then constant."""
    fraction = min(max(step / num_steps, 0.0), 1.0)
    return start + (end - start) * fraction
