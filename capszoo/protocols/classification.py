"""`evaluate`, which measures any protocol; and test errors: the same count on test splits of different data sets."""

import dataclasses
from collections.abc import Callable

import keras

from capszoo.config import ConfigError, nearest
from capszoo.data import Affnist, AffnistSynth, Mnist, MultiMnist
from capszoo.progress import QUIET, Progress
from capszoo.protocols import provenance
from capszoo.protocols.crops import predict_crops
from capszoo.protocols.linear_probe import PROBES, predict_presence_probe, predict_probe
from capszoo.protocols.means import MEANS
from capszoo.protocols.measurement import Measurement
from capszoo.protocols.statistics import wilson
from capszoo.protocols.support_vectors import HEADS, predict_masked_svm, predict_svm
from capszoo.training.recipe import Recipe
from capszoo.training.scoring import predict_split, wrong


def test_error(recipe):
    """The test split of the preset's own data set, unaugmented (Sabour et al. 2017, Table 1).

    Where an image has several labels it is right only if all of them are its highest scores.
    """
    return recipe.data


def test_error_multicrop(recipe):
    """As `test_error`, with scores averaged over 13 crops of each image (Hinton et al. 2018, section 5: 1.4 %)."""
    return recipe.data


def familiar_azimuths(recipe):
    """Test pairs from the azimuths -60 to 40 degrees, which the model was trained on (Hinton et al. 2018, Table 2)."""
    return _views(recipe, "familiar azimuth")


def novel_azimuths(recipe):
    """Test pairs from the azimuths 60 to 280 degrees, for a model that was trained on the others (Table 2)."""
    return _views(recipe, "novel azimuth")


def familiar_elevations(recipe):
    """Test pairs from the elevations 30 to 40 degrees, which the model was trained on (Table 2)."""
    return _views(recipe, "familiar elevation")


def novel_elevations(recipe):
    """Test pairs from the elevations 45 to 70 degrees, for a model that was trained on the lower ones (Table 2)."""
    return _views(recipe, "novel elevation")


def _views(recipe, views):
    """The preset's data set seen from `views`; refuses a model to which these are not what they are called."""
    trained, received = views.replace("novel", "familiar"), getattr(recipe.data, "views", None)
    if received != trained:
        raise ConfigError(
            f"{views!r} is for a model trained with data.views={trained!r}. Received: data.views={received!r}"
        )
    return dataclasses.replace(recipe.data, views=views)


def expanded_mnist(recipe):
    """MNIST's test digits in the middle of 40x40, by which a net for affNIST is stopped (Sabour et al. 2017, 5.1)."""
    return Mnist(pad=6, shift=6)


def affnist(recipe):
    """affNIST's test set, 320,000 affine digits of 40x40, for a net trained on expanded MNIST only (section 5.1)."""
    return Affnist()


def affnist_synth(recipe):
    """Our own affine digits made from MNIST's test set with affNIST's ranges; not affNIST itself."""
    return AffnistSynth()


def multimnist(recipe):
    """MultiMNIST's test pairs; a pair counts only when both digits are right (Sabour et al. 2017, section 6)."""
    return MultiMnist()


PROTOCOLS: dict[str, Callable] = {
    function.__name__: function
    for function in (
        test_error,
        test_error_multicrop,
        familiar_azimuths,
        novel_azimuths,
        familiar_elevations,
        novel_elevations,
        expanded_mnist,
        affnist,
        affnist_synth,
        multimnist,
    )
}
MASKED_HEADS = {f"masked_{name}": function for name, function in HEADS.items()}
PRESENCE_PROBES = {f"presence_{name}": function for name, function in PROBES.items()}
# Protocols that ask a model for poses, and not for scores of classes, by what classifies them.
METRICS = {
    **dict.fromkeys(HEADS | MASKED_HEADS, "SVM test error"),
    **dict.fromkeys(PROBES | PRESENCE_PROBES, "linear probe test error"),
}
OF_POSES = {**HEADS, **MASKED_HEADS, **PROBES, **PRESENCE_PROBES}
PROTOCOLS |= OF_POSES | MEANS
# How a protocol gets the scores of a split, where that is not one look at each image.
SCORES: dict[str, Callable] = {
    "test_error_multicrop": predict_crops,
    **dict.fromkeys(HEADS, predict_svm),
    **dict.fromkeys(MASKED_HEADS, predict_masked_svm),
    **dict.fromkeys(PROBES, predict_probe),
    **dict.fromkeys(PRESENCE_PROBES, predict_presence_probe),
}
for _function in PROTOCOLS.values():
    _function.__test__ = False  # not pytest's


def evaluate(
    model: keras.Model,
    recipe: Recipe,
    protocol: str = "test_error",
    *,
    command: str = "",
    seeds: int = 1,
    progress: Progress = QUIET,
) -> Measurement:
    """Measures one protocol on `model`.

    where:
      model: an inference model of `recipe`, or anything with its `predict_on_batch(images) -> {"scores": ...}`.
      recipe: the `capszoo.zoo.recipes.Recipe` of the model.
      protocol: a name in `PROTOCOLS`.
      command: the command line that measures the same again, for the record.
      progress: counts images.

    Errors: `ConfigError` for an unknown protocol or one that does not fit the model or its training; `DataNotFound`.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"unknown protocol {protocol!r}{nearest(protocol, PROTOCOLS)}")
    measure = _mean if protocol in MEANS else _test_error
    return Measurement(
        protocol=protocol,
        **measure(model, recipe, protocol, progress),
        split="test",
        paper=recipe.card.protocols.get(protocol),
        seeds=seeds,
        command=command,
        **provenance.stamp(),
    )


def _mean(model, recipe, protocol, progress):
    """What a `Measurement` says of a mean and of its data."""
    mean = MEANS[protocol](model, recipe, progress)
    return {
        "metric": mean.metric,
        "value": mean.value,
        "interval": mean.interval,
        "wrong": None,
        "n": len(mean.values),
        "unit": mean.unit,
        "data": recipe.data.section_name,
        "fingerprint": recipe.data.open("test").fingerprint(),
    }


def _test_error(model, recipe, protocol, progress):
    """What a `Measurement` says of a share of wrong images and of its data."""
    if not recipe.model.head and protocol not in OF_POSES:
        raise ConfigError(
            f"protocol {protocol!r} needs scores of classes, and {recipe.model.section_name!r} knows none. "
            f"Fit a classifier to its poses: {', '.join(OF_POSES)}."
        )
    data = PROTOCOLS[protocol](recipe)
    if data.image_shape != recipe.data.image_shape:
        raise ConfigError(
            f"protocol {protocol!r} has images of {data.image_shape}, the model takes {recipe.data.image_shape}. "
            "It is for models trained on images of that shape."
        )
    split = data.open("test")
    progress.begin(protocol, len(split))
    predict = SCORES.get(protocol, predict_split)
    scores, labels = predict(model, split, progress=progress)
    mistakes = int(wrong(scores, labels).sum())
    return {
        "metric": METRICS.get(protocol, "test error"),
        "value": mistakes / len(split),
        "interval": wilson(mistakes, len(split)),
        "wrong": mistakes,
        "n": len(split),
        "data": data.section_name,
        "fingerprint": split.fingerprint(),
    }
