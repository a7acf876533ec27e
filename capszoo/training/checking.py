"""What a recipe's options, its network and its images must have in common to be trained."""

import numpy as np

from capszoo.config import ConfigError
from capszoo.data.checking import check_shape, check_values
from capszoo.models.architecture import Classifies, Reconstructs
from capszoo.models.targets import check_labels


def require_options(recipe):
    """Errors: `ConfigError` for options of a stage that do not fit its network or the data."""
    options, model, data = recipe.train, recipe.model, recipe.data
    if options.freeze and options.freeze not in model.stages:
        raise ConfigError(
            f"train.freeze: must be one of the stages {', '.join(model.stages)}. Received: {options.freeze!r}"
        )
    if options.mixup and not model.has(Classifies):
        raise ConfigError("train.mixup mixes labels, and nothing here is trained on any.")
    if options.stop_at_error is not None and options.stop_split == "validation" and not data.validates:
        raise ConfigError("train.stop_at_error needs a validation split. Received data without one.")
    if data.validates and not any(map(model.has, (Classifies, Reconstructs))):
        raise ConfigError(
            f"data.validation: {model.section_name!r} neither classifies nor reconstructs, so that nothing "
            "is measured of validation images. Received data with some."
        )


def require_split(recipe, split):
    """Errors: `ConfigError` for a split whose first images are not those of the recipe, and for an empty one."""
    if not len(split):
        raise ConfigError("data: a split without images cannot be trained on or validate.")
    first = split.batch(np.arange(min(len(split), 32)), None)
    try:
        check_shape(first["images"].shape, recipe.data.image_shape)
        check_values(first["images"], recipe.data.preprocessing.get("standardise", False))
    except ValueError as error:
        raise ConfigError(f"data: {error}") from error
    if recipe.model.has(Classifies):
        require_labels(recipe, first["labels"])


def require_labels(recipe, labels):
    """Errors: `ConfigError` for labels that are none of the recipe's classes."""
    try:
        check_labels(labels, recipe.data.num_classes, recipe.data.labels_per_image)
    except ValueError as error:
        raise ConfigError(f"data: {error}") from error
