"""Efficient-CapsNet: the networks that its authors published, number by number."""

import pytest

from capszoo.models import EfficientCapsNet
from capszoo.models.architecture import DecodesPoses, Reconstructs, RoutesIteratively
from capszoo.models.network import trainable_parameters

SMALLNORB = {
    "kernel_sizes": (7, 3, 3, 3),
    "strides": (2, 1, 1, 2),
    "normalisation": "instance",
    "primary_kernel": 8,
}


@pytest.mark.parametrize(
    ("hyperparameters", "image_shape", "classes", "parameters"),
    [
        ({}, (28, 28, 1), 10, 161_824),
        ({"strides": (1, 1, 2, 2), "primary_kernel": 5, "primary_strides": 2}, (36, 36, 1), 10, 154_656),
        (SMALLNORB, (48, 48, 2), 5, 151_664),
    ],
    ids=["mnist", "multimnist", "smallnorb"],
)
def test_it_has_the_published_parameters(hyperparameters, image_shape, classes, parameters):
    model = EfficientCapsNet(decoder=False, **hyperparameters).build(image_shape, classes)
    assert trainable_parameters(model) == parameters
    assert model.get_layer("primary_capsules").output.shape == (None, 1, 1, 16, 8)


def test_it_routes_in_one_pass_and_reconstructs_only_with_a_decoder():
    assert EfficientCapsNet().has(DecodesPoses)
    assert not EfficientCapsNet().has(RoutesIteratively)
    assert not EfficientCapsNet(decoder=False).has(Reconstructs)


def test_images_too_small_for_the_convolutions_are_refused():
    with pytest.raises(ValueError, match="images of 26 pixels are too small"):
        EfficientCapsNet().build((26, 28, 1), 10)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"strides": (1, 2)}, "equally many"),
        ({"channels": (32, 64, 64, 0)}, "channels must be at least 1"),
        ({"primary_kernel": 0}, "primary_kernel must be at least 1"),
        ({"primary_dim": 7}, "a multiple of primary_dim"),
    ],
)
def test_illegal_hyperparameters_are_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        EfficientCapsNet(**wrong)
