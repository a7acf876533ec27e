"""The network of Sabour et al. 2017: sizes of the paper, initial lengths, what it is trained on."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import losses as oracle
from support import POLICIES, assert_nearer_than_other_rows, dtype_policy, fill

from capszoo.losses import MarginLoss, ReconstructionLoss
from capszoo.models import DynamicCapsNet

SMALL = DynamicCapsNet(channels=16, primary_types=4)
CIFAR10 = DynamicCapsNet(primary_types=64, padding="same", routing="leaky", decoder=False)


@functools.cache
def built(architecture, image_shape, num_classes=10, labels_per_image=1):
    return architecture.build(image_shape, num_classes, labels_per_image)


@pytest.mark.parametrize(
    ("architecture", "image_shape", "num_classes", "labels", "parameters"),
    [
        (DynamicCapsNet(), (28, 28, 1), 10, 1, 8_215_728),
        (DynamicCapsNet(decoder=False), (28, 28, 1), 10, 1, 6_804_384),
        (DynamicCapsNet(class_bias=False), (28, 28, 1), 10, 1, 8_215_568),
        (DynamicCapsNet(), (36, 36, 1), 10, 2, 11_361_968),
        (DynamicCapsNet(), (40, 40, 1), 10, 1, 13_475_808),
        (CIFAR10, (24, 24, 3), 10, 1, 62_464 + 10_617_344 + 11_796_480 + 160),
        (DynamicCapsNet(decoder=False), (32, 32, 2), 5, 1, 41_728 + 5_308_672 + 1_310_720 + 80),
    ],
    ids=["mnist", "without decoder", "without class bias", "multimnist", "affnist", "cifar10", "smallnorb"],
)
def test_it_has_as_many_parameters_as_the_papers(architecture, image_shape, num_classes, labels, parameters):
    assert built(architecture, image_shape, num_classes, labels).count_params() == parameters


def test_each_stage_has_the_parameters_of_the_paper():
    model = built(DynamicCapsNet(), (28, 28, 1))
    counts = {name: model.get_layer(name).count_params() for name in (*DynamicCapsNet.stages, "decoder")}
    assert counts == {
        "conv1": 20_992,
        "primary_capsules": 5_308_672,
        "class_capsules": 1_474_560 + 160,
        "decoder": 1_411_344,
    }


@pytest.mark.parametrize(
    ("architecture", "image_shape", "num_classes", "labels", "conv1", "primary"),
    [
        (DynamicCapsNet(), (28, 28, 1), 10, 1, (20, 20, 256), (6, 6, 32, 8)),
        (DynamicCapsNet(), (36, 36, 1), 10, 2, (28, 28, 256), (10, 10, 32, 8)),
        (DynamicCapsNet(), (40, 40, 1), 10, 1, (32, 32, 256), (12, 12, 32, 8)),
        (CIFAR10, (24, 24, 3), 10, 1, (24, 24, 256), (12, 12, 64, 8)),
        (DynamicCapsNet(decoder=False), (32, 32, 2), 5, 1, (24, 24, 256), (8, 8, 32, 8)),
    ],
    ids=["mnist", "multimnist", "affnist", "cifar10", "smallnorb"],
)
def test_its_stages_have_the_shapes_of_the_papers(
    architecture, image_shape, num_classes, labels, conv1, primary
):
    model = built(architecture, image_shape, num_classes, labels)
    assert model.get_layer("conv1").output.shape[1:] == conv1
    assert model.get_layer("primary_capsules").output.shape[1:] == primary
    assert model.get_layer("class_capsules").output.shape[1:] == (num_classes, 16)
    assert model.output["scores"].shape == (None, num_classes)
    assert ("reconstruction" in model.output) == architecture.decoder


def test_the_published_networks_compute():
    rng = np.random.default_rng(0)
    for architecture, shape, classes in (
        (CIFAR10, (24, 24, 3), 10),
        (DynamicCapsNet(decoder=False), (32, 32, 2), 5),
    ):
        outputs = built(architecture, shape, classes)(rng.random((2, *shape), "float32"))
        assert outputs["poses"].shape == (2, classes, 16)
        assert np.all(np.isfinite(outputs["scores"]))


@pytest.mark.parametrize("routing", ["dynamic", "leaky", "mean", "sum"])
def test_untrained_class_capsules_are_neither_dead_nor_saturated(routing):
    # Shrunk initial matrices give lengths of 1e-5, from which training does not start; the bias would hide it. At 1
    # the squash is flat.
    model = DynamicCapsNet(channels=64, routing=routing, class_bias=False, decoder=False).build(
        (28, 28, 1), 10
    )
    images = np.zeros((4, 28, 28, 1), "float32")
    images[:, 6:22, 11:17] = 1
    scores = model(images)["scores"].numpy()
    assert 0.002 < scores.min() <= scores.max() < 0.9


def test_the_first_convolution_begins_as_in_the_authors_code():
    kernel, bias = built(DynamicCapsNet(), (28, 28, 1)).get_layer("conv1").get_weights()
    np.testing.assert_allclose(kernel.std(), 0.044, rtol=0.03)
    np.testing.assert_array_equal(bias, np.full(256, 0.1, "float32"))


def test_the_primary_scale_is_the_authors_unless_another_is_given():
    scale = lambda architecture: architecture.build((20, 20, 1), 3).get_layer("primary_capsules").scale  # noqa: E731
    assert scale(DynamicCapsNet(channels=4)) == 1 / 32
    assert scale(DynamicCapsNet(channels=4, primary_types=4)) == 1 / 4
    assert scale(DynamicCapsNet(channels=4, primary_scale=1.0)) == 1


@pytest.mark.parametrize("routing", ["dynamic", "leaky", "sum", "mean"])
def test_its_routing_is_the_one_that_was_asked_for(routing):
    layer = DynamicCapsNet(channels=4, routing=routing, num_iterations=2, class_bias=False).build(
        (20, 20, 1), 3
    )
    config = layer.get_layer("class_capsules").routing.get_config()
    expected = (
        {"num_iterations": 2, "leaky": routing == "leaky"}
        if routing in ("dynamic", "leaky")
        else {"scale": routing}
    )
    assert {key: config[key] for key in expected} == expected
    assert config["use_bias"] is False


def test_scores_are_the_lengths_of_the_poses(tiny_model):
    outputs = tiny_model(np.random.default_rng(0).random((3, 28, 28, 1), "float32"))
    np.testing.assert_allclose(outputs["scores"], np.linalg.norm(outputs["poses"], axis=-1), rtol=1e-4)


def test_inference_decodes_the_longest_capsule_and_training_that_of_the_label(tiny_model):
    images = np.random.default_rng(0).random((4, 28, 28, 1), "float32")
    outputs = tiny_model(images)
    trained = SMALL.objective(tiny_model)
    longest = np.argmax(outputs["scores"], axis=-1)
    for labels, same in ((longest, True), ((longest + 1) % 10, False)):
        inputs, _ = trained.arrange({"images": images, "labels": labels})
        decoded = trained.model(inputs)["reconstruction"][:, 0]
        assert np.allclose(decoded, outputs["reconstruction"], atol=1e-6) is same
        poses = outputs["poses"].numpy() * np.eye(10, dtype="float32")[labels][..., None]
        expected = tiny_model.get_layer("decoder")(poses.reshape(4, 1, 160))[:, 0]
        np.testing.assert_allclose(decoded, expected, rtol=1e-5, atol=1e-6)


def test_the_objective_is_margin_loss_and_reconstruction_of_the_image(tiny_model):
    objective = SMALL.objective(tiny_model)
    assert {name: type(loss) for name, loss in objective.losses.items()} == {
        "scores": MarginLoss,
        "reconstruction": ReconstructionLoss,
    }
    images, labels = np.random.default_rng(0).random((4, 28, 28, 1), "float32"), np.array([3, 1, 4, 1])
    inputs, targets = objective.arrange({"images": images, "labels": labels})
    np.testing.assert_array_equal(inputs["images"], images)
    np.testing.assert_array_equal(inputs["labels"], np.eye(10)[labels][:, None])
    np.testing.assert_array_equal(targets["scores"], np.eye(10)[labels])
    np.testing.assert_array_equal(targets["reconstruction"], images[:, None])


def test_without_a_decoder_the_objective_needs_no_labels_as_input():
    architecture = DynamicCapsNet(channels=4, decoder=False, loss_scaling="official")
    objective = architecture.objective(architecture.build((20, 20, 1), 3))
    inputs, targets = objective.arrange(
        {"images": np.zeros((2, 20, 20, 1), "float32"), "labels": np.array([2, 0])}
    )
    assert set(inputs) == {"images"} == set(objective.model.input)
    assert set(targets) == {"scores"} == set(objective.losses)
    assert objective.losses["scores"].scaling == "official"


def test_multimnist_reconstructs_each_label_and_compares_it_with_its_own_source():
    model = SMALL.build((20, 20, 1), 5, 2)
    objective = SMALL.objective(model, labels_per_image=2)
    rng = np.random.default_rng(0)
    sources = rng.random((3, 2, 20, 20, 1), "float32")
    labels = np.array([[3, 0], [1, 4], [2, 1]])
    images = np.minimum(sources.sum(axis=1), 1)
    inputs, targets = objective.arrange({"images": images, "labels": labels, "sources": sources})
    np.testing.assert_array_equal(targets["scores"].sum(axis=1), [2, 2, 2])
    np.testing.assert_array_equal(targets["scores"][0], [1, 0, 0, 1, 0])
    np.testing.assert_array_equal(targets["reconstruction"], sources)

    outputs = objective.model(inputs)
    poses = model(images)["poses"].numpy()
    for n in range(2):
        mask = np.eye(5, dtype="float32")[labels[:, n]][..., None]
        expected = model.get_layer("decoder")((poses * mask).reshape(3, 1, 80))[:, 0]
        np.testing.assert_allclose(outputs["reconstruction"][:, n], expected, rtol=1e-5, atol=1e-6)
    loss = objective.losses["reconstruction"](targets["reconstruction"], outputs["reconstruction"])
    np.testing.assert_allclose(
        loss, oracle.reconstruction_loss(sources, outputs["reconstruction"]), rtol=1e-5
    )


def test_multimnist_decodes_the_two_longest_capsules_at_inference():
    model = SMALL.build((20, 20, 1), 5, 2)
    outputs = model(np.random.default_rng(0).random((3, 20, 20, 1), "float32"))
    order = np.argsort(-outputs["scores"].numpy(), axis=-1)
    for n in range(2):
        mask = np.eye(5, dtype="float32")[order[:, n]][..., None]
        expected = model.get_layer("decoder")((outputs["poses"] * mask).numpy().reshape(3, 1, 80))[:, 0]
        np.testing.assert_allclose(outputs["reconstruction"][:, n], expected, rtol=1e-5, atol=1e-6)


def test_the_weights_of_the_head_are_those_whose_shape_depends_on_the_classes():
    shapes = [
        {weight.path: tuple(weight.shape) for weight in SMALL.build((20, 20, 1), classes).weights}
        for classes in (5, 7)
    ]
    assert shapes[0].keys() == shapes[1].keys()
    changed = {path for path in shapes[0] if shapes[0][path] != shapes[1][path]}
    assert changed
    assert all(path.startswith(SMALL.head) for path in changed)


def test_weights_have_the_same_paths_every_time_it_is_built():
    paths = [[weight.path for weight in SMALL.build((20, 20, 1), 5).weights] for _ in range(2)]
    assert paths[0] == paths[1]
    assert "class_capsules/routing/bias" in paths[0]


def test_a_compiled_training_step_moves_every_weight():
    architecture = dataclasses.replace(SMALL, decoder=False)
    model = architecture.build((17, 17, 1), 5)
    objective = architecture.objective(model)
    images = np.random.default_rng(0).random((4, 17, 17, 1), "float32")
    batch = {"images": images, "labels": np.array([0, 1, 2, 3])}
    objective.compile(keras.optimizers.Adam(1e-3), batch, jit_compile=True)
    before = model.get_weights()
    objective.model.train_on_batch(*objective.arrange(batch))
    for weight, old in zip(model.weights, before, strict=True):
        assert np.any(weight.numpy() != old), weight.path


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_mixed_precision_keeps_its_outputs_in_float32_and_near(policy):
    images = np.random.default_rng(0).random((3, 20, 20, 1), "float32")
    expected = fill(SMALL.build((20, 20, 1), 5), scale=0.2)(images)
    with dtype_policy(policy):
        model = fill(SMALL.build((20, 20, 1), 5), scale=0.2)
        outputs = model(images)
    assert {tensor.dtype for tensor in outputs.values()} == {tf.float32}
    assert_nearer_than_other_rows(outputs, expected, 0.1)
    assert all(weight.dtype == "float32" for weight in model.weights)


@pytest.mark.parametrize("shape", [(16, 28, 1), (28, 16, 1)])
def test_images_too_small_for_its_convolutions_are_refused(shape):
    with pytest.raises(ValueError, match=r"images must be at least 17x17\. Received"):
        SMALL.build(shape, 10)


def test_the_smallest_images_leave_one_position_of_primary_capsules():
    assert SMALL.build((17, 17, 1), 3).get_layer("primary_capsules").output.shape == (None, 1, 1, 4, 8)
