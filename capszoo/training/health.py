"""Whether a network can be trained here, and is likely to learn, before it is trained."""

import math
import os
import warnings

import keras
import numpy as np

from capszoo.config import ConfigError
from capszoo.models.architecture import Classifies

# Mean activation of a capsule layer outside of which a fresh network hardly learns.
HEALTHY = (0.02, 0.95)
# Mean deviation of a stage over images, as a share of its mean magnitude, below which it tells none apart.
DISTINCT = 1e-3


class TrainingDiverged(ArithmeticError):
    """The loss stopped being finite. The last checkpoint is from before that."""


def check_memory(model, batch_size):
    """Errors: `ConfigError` for a batch whose layers' outputs, four bytes a number, this machine has no memory for.

    All of them are kept for the gradient. Votes, which are more, are not counted: what passes may still be too large.
    """
    outputs = [tensor for layer in model.layers for tensor in keras.tree.flatten(layer.output)]
    needed = 4 * batch_size * sum(math.prod(size or 1 for size in tensor.shape[1:]) for tensor in outputs)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise ConfigError(
            f"train.batch_size: a batch of {batch_size:,} takes more than {needed / 1e9:,.0f} GB; this machine has "
            f"{present / 1e9:,.0f} GB."
        )


def _as_in_training(model, images):
    """Outputs of `model` in training, which leaves nothing behind in its variables."""
    before = [np.asarray(variable).copy() for variable in model.non_trainable_variables]
    outputs = model(images, training=True)
    for variable, value in zip(model.non_trainable_variables, before, strict=True):
        variable.assign(value)
    return outputs


def check_health(recipe, model, images, fresh=True):
    """Mean activation of each stage of a model on `images`; warns where learning of a fresh one would hardly start.

    That is where activations are almost all zero or saturated, or the same for every image. What has learnt before may
    well be so, except that classes which are vectors are not all of length one: so they are with weights of smaller
    images where routing adds up the votes of every position, and squashing leaves no gradient.

    Errors: `TrainingDiverged` for values that are not finite.
    """
    report, classes = {}, recipe.model.stages[-1] if recipe.model.has(Classifies) else None
    stages = keras.Model(model.input, {name: model.get_layer(name).output for name in recipe.model.stages})
    # What is normalised over the batch has no statistics before any training but those of the batch.
    outputs = _as_in_training(stages, images) if fresh else stages.predict_on_batch(images)
    for name, value in outputs.items():
        # Matrix capsules are a pair of poses and activations.
        value, *activations = [np.asarray(part, "float32") for part in keras.tree.flatten(value)]
        if not all(np.isfinite(part).all() for part in (value, *activations)):
            raise TrainingDiverged(f"{name} gives values that are not finite before any training.")
        # Vector capsules are [B, O, D], or [B, H, W, types, D] on a grid; a capsule is as active as it is long.
        capsules = not activations and value.ndim in (3, 5)
        if activations:
            report[name] = float(activations[0].mean())
        else:
            report[name] = float(np.linalg.norm(value, axis=-1).mean() if capsules else (value > 0).mean())
        if fresh and not HEALTHY[0] <= report[name] <= HEALTHY[1]:
            warnings.warn(
                f"{name}: mean activation {report[name]:.3g} after initialisation, outside {HEALTHY}; "
                "training may not start. Check input range, initial weights and primary_scale.",
                stacklevel=2,
            )
        elif capsules and name == classes and report[name] > HEALTHY[1]:
            warnings.warn(
                f"{name}: mean activation {report[name]:.3g} with the weights that training begins with, of images for "
                "which they may not be; training may not start. Give images of the size that the weights have seen, or "
                "begin without weights, train.start_from=null.",
                stacklevel=2,
            )
        if fresh and len(images) > 1 and value.std(axis=0).mean() < DISTINCT * np.abs(value).mean():
            warnings.warn(
                f"{name}: gives almost the same for every image after initialisation; training may not start. "
                "Check input range, initial weights and primary_scale.",
                stacklevel=2,
            )
    return report
