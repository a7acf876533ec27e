"""Parts and objects of a stacked capsule autoencoder, beside the paper's equations in float64."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from oracles import stacked_capsules as oracle
from oracles.probabilistic_capsules import sigmoid
from support import fill, numeric_gradient

from capszoo.layers import (
    ObjectVotes,
    PartCapsules,
    PartElements,
    PresentAttention,
    PresentSeedPooling,
    PresentSetAttention,
    SeparateDense,
    TemplateMixture,
    VoteMixture,
)
from capszoo.layers.affine_poses import affine_poses

OBJECTS, PARTS = 3, 4
SIZE, SIDE = (9, 11), 5
EXTREMES = (-200.0, -20.0, 0.0, 20.0, 200.0)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def as_float32(arrays):
    return [np.asarray(array, "float32") for array in arrays]


def made(layer, *inputs, scale=0.3):
    layer(*inputs)
    return fill(layer, scale=scale)


# Poses


def test_six_numbers_make_the_pose_of_the_oracle(rng):
    numbers = rng.normal(size=(5, 4, 6))
    expected = [[oracle.pose(each) for each in row] for row in numbers]
    np.testing.assert_allclose(affine_poses(numbers.astype("float32")), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", EXTREMES)
def test_a_pose_has_an_inverse_whatever_its_numbers(number):
    poses = np.asarray(affine_poses(np.full((1, 6), number, "float32")), "float64")
    assert np.linalg.det(poses[0, :, :2]) >= 0.9e-4


def test_part_capsules_are_numbers_in_their_order(rng):
    numbers = rng.normal(size=(2, PARTS, 9)).astype("float32")
    poses, presence, logits, features = PartCapsules()(numbers)
    np.testing.assert_allclose(poses, affine_poses(numbers[..., :6]))
    np.testing.assert_array_equal(logits, numbers[..., 8])
    np.testing.assert_allclose(presence, sigmoid(numbers[..., 8]), rtol=1e-5)
    np.testing.assert_array_equal(features, numbers[..., 6:8])


def test_noise_is_uniform_and_in_training_only():
    numbers = np.ones((500, PARTS, 8), "float32")
    layer = PartCapsules(noise=2.0)
    np.testing.assert_array_equal(layer(numbers)[2], 1)
    noise = np.asarray(layer(numbers, training=True)[2]) - 1
    assert np.abs(noise).max() < 2
    assert noise.std() == pytest.approx(2 / np.sqrt(3), rel=0.05)
    np.testing.assert_array_equal(PartCapsules(noise=0.0)(numbers, training=True)[2], 1)


# Sets


def test_attention_is_weighted_by_presence(rng):
    lookers, seen, presence = as_float32(
        [rng.normal(size=(1, 3, 5)), rng.normal(size=(1, 4, 6)), rng.random((1, 4))]
    )
    layer = made(PresentAttention(8), lookers, seen, presence)
    w = {weight.path.partition("/")[2]: np.asarray(weight, "float64") for weight in layer.weights}
    q = lookers[0] @ w["queries/kernel"] + w["queries/bias"]
    weights = np.exp(q @ (seen[0] @ w["keys/kernel"]).T / np.sqrt(8)) * presence[0]
    found = weights / weights.sum(-1, keepdims=True) @ (seen[0] @ w["values/kernel"] + w["values/bias"])
    expected = found @ w["output/kernel"] + w["output/bias"]
    np.testing.assert_allclose(layer(lookers, seen, presence)[0], expected, rtol=1e-3, atol=1e-4)


def test_a_block_is_that_of_the_formula(rng):
    x, d = as_float32([rng.normal(size=(1, 4, 6)), rng.random((1, 4))])
    layer = made(PresentSetAttention(), x, d)
    w = {weight.path.partition("/")[2]: np.asarray(weight, "float64") for weight in layer.weights}

    def norm(values, i):
        scaled = (values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, keepdims=True) + 1e-3)
        return w[f"norm{i}/gamma"] * scaled + w[f"norm{i}/beta"]

    h = norm(d[0][:, None] * (x[0] + np.asarray(layer.attention(x, x, d))[0]), 1)
    hidden = np.maximum(0, h @ w["hidden/kernel"] + w["hidden/bias"])
    expected = norm(h + hidden @ w["output/kernel"] + w["output/bias"], 2)
    np.testing.assert_allclose(layer(x, d)[0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("create", [lambda: PresentSeedPooling(3, 8), PresentSetAttention])
def test_absent_elements_are_seen_by_nobody(create, rng):
    x, d = as_float32([rng.normal(size=(1, 5, 6)), [[1, 0.5, 0, 1, 0.2]]])
    layer = made(create(), x, d)
    others = x.copy()
    others[0, 2] = 3.0
    before, after = np.asarray(layer(x, d))[0], np.asarray(layer(others, d))[0]
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    others[0, 1] = 3.0
    assert np.abs(np.asarray(layer(others, d))[0] - before).max() > 1e-3


def test_a_set_is_pooled_whatever_its_order(rng):
    x, d = as_float32([rng.normal(size=(2, 5, 6)), rng.random((2, 5))])
    layer, order = made(PresentSeedPooling(3, 8), x, d), [3, 0, 4, 1, 2]
    np.testing.assert_allclose(layer(x[:, order], d[:, order]), layer(x, d), rtol=1e-4, atol=1e-5)


def test_elements_hold_what_is_known_of_parts_and_let_gradients_through_features_alone(rng):
    shapes = (2, PARTS, 2, 3), (2, PARTS), (2, PARTS, 3), (2, PARTS, SIDE, SIDE, 1)
    inputs = [tf.constant(rng.random(shape), tf.float32) for shape in shapes]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        elements, presence = PartElements()(*inputs)
        total = tf.reduce_sum(elements) + tf.reduce_sum(presence)
    poses, given, features, templates = (np.asarray(each) for each in inputs)
    expected = [poses.reshape(2, PARTS, 6), 1 - given[..., None], features, templates.reshape(2, PARTS, -1)]
    np.testing.assert_allclose(elements, np.concatenate(expected, axis=-1), rtol=1e-6)
    np.testing.assert_array_equal(presence, given)
    gradients = tape.gradient(total, inputs)
    assert [gradient is not None for gradient in gradients] == [False, False, True, False]


# Objects


def test_each_object_has_a_layer_of_its_own(rng):
    x = rng.normal(size=(2, OBJECTS, 4)).astype("float32")
    layer = made(SeparateDense(5, "relu"), x)
    kernel, bias = (np.asarray(weight, "float64") for weight in layer.weights)
    expected = [[np.maximum(0, row[k] @ kernel[k] + bias[k]) for k in range(OBJECTS)] for row in x]
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def numbers(rng):
    return rng.normal(size=(2, OBJECTS, 8 * PARTS + 7)).astype("float32")


def test_votes_and_presences_are_those_of_the_oracle(numbers):
    layer = made(ObjectVotes(PARTS), numbers)
    poses, presence, logits, votes, log_presences, widths, dynamic = (
        np.asarray(output) for output in layer(numbers)
    )
    w = {weight.name: np.asarray(weight, "float64") for weight in layer.weights}
    for b, k in np.ndindex(2, OBJECTS):
        n = numbers[b, k].astype("float64")
        offsets = n[: 6 * PARTS].reshape(PARTS, 6)
        np.testing.assert_allclose(dynamic[b, k], offsets, rtol=1e-6)
        pose = oracle.pose(n[6 * PARTS : 6 * PARTS + 6] + w["pose_bias"][k])
        np.testing.assert_allclose(poses[b, k], pose, rtol=1e-3, atol=1e-4)
        a_k = sigmoid(n[6 * PARTS + 6] + w["presence_bias"][k])
        a_km = sigmoid(n[6 * PARTS + 7 : 7 * PARTS + 7] + w["vote_bias"][k])
        np.testing.assert_allclose(log_presences[b, k], np.log(a_k * a_km), rtol=1e-4)
        np.testing.assert_allclose(presence[b, k], a_k * a_km.max(), rtol=1e-4)
        np.testing.assert_allclose(sigmoid(logits[b, k].astype("float64")), presence[b, k], rtol=1e-4)
        np.testing.assert_allclose(widths[b, k], n[7 * PARTS + 7 :] + w["width_bias"][k], rtol=1e-5)
        for m in range(PARTS):
            expected = oracle.vote(pose, oracle.pose(offsets[m] + w["offsets"][k, m]))
            np.testing.assert_allclose(votes[b, k, m], expected, rtol=1e-3, atol=1e-4)


def test_objects_have_noise_in_training_only(numbers):
    layer = ObjectVotes(PARTS)
    before, after = layer(numbers), layer(numbers, training=True)
    for output in (2, 4):
        assert np.abs(np.asarray(after[output]) - np.asarray(before[output])).max() > 0.1
    for output in (0, 3, 5, 6):
        np.testing.assert_array_equal(after[output], before[output])
    np.testing.assert_array_equal(layer(numbers)[2], before[2])


def test_numbers_for_other_parts_are_refused(numbers):
    with pytest.raises(ValueError, match=r"numbers of each object must be 47\. Received: 39"):
        ObjectVotes(PARTS + 1)(numbers)


@pytest.fixture
def mixed(rng):
    """Votes, log-presences and widths of objects, poses and presences of parts that are near some votes."""
    votes = rng.normal(size=(2, OBJECTS, PARTS, 2, 3))
    log_presences = np.log(rng.random((2, OBJECTS, PARTS)))
    widths = rng.normal(size=(2, OBJECTS, PARTS)) - 1
    part_poses = votes[:, 1] + 0.3 * rng.normal(size=(2, PARTS, 2, 3))
    return votes, log_presences, widths, part_poses, rng.random((2, PARTS))


def test_parts_are_as_likely_as_the_oracle_says(mixed):
    density, coefficients, explained = VoteMixture()(*as_float32(mixed))
    for image in range(2):
        votes, log_presences, widths, part_poses, presence = (array[image] for array in mixed)
        expected, owners = oracle.parts_given_objects(part_poses, presence, votes, log_presences, widths)
        np.testing.assert_allclose(density[image], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(coefficients[image], owners, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(explained[image], owners[:, 1:].mean(axis=0), rtol=1e-4, atol=1e-5)


def test_the_density_of_a_part_has_the_slope_of_the_oracle(mixed):
    votes, log_presences, widths, part_poses, presence = (array[0] for array in mixed)

    def total(which, value):
        arrays = [votes, log_presences, widths]
        arrays[which] = value
        return oracle.parts_given_objects(part_poses, presence, *arrays)[0].sum()

    inputs = [tf.constant(array[:1], tf.float32) for array in mixed]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        density, _, _ = VoteMixture()(*inputs)
    gradients = tape.gradient(density, inputs)
    for which, array in enumerate((votes, log_presences, widths)):
        expected = numeric_gradient(lambda value, which=which: total(which, value), array)
        np.testing.assert_allclose(gradients[which][0], expected, rtol=1e-3, atol=1e-4)
    assert gradients[3:] == [None, None], "parts are what is explained: no gradient goes through them"


def test_parts_that_nobody_explains_belong_to_the_clutter(mixed):
    votes, log_presences, widths, part_poses, presence = as_float32(mixed)
    density, coefficients, explained = VoteMixture()(votes + 100, log_presences, widths, part_poses, presence)
    np.testing.assert_allclose(coefficients[..., 0], 1)
    np.testing.assert_allclose(explained, 0)
    clutter = np.log(0.01) + np.log(0.01 / (0.01 + np.exp(log_presences).sum(axis=1)))
    np.testing.assert_allclose(density, presence * clutter, rtol=1e-4)


@pytest.mark.parametrize("extreme", EXTREMES)
def test_gradients_of_objects_are_finite_however_certain_they_are(extreme):
    numbers = tf.fill((1, OBJECTS, 8 * PARTS + 7), extreme)
    layer = ObjectVotes(PARTS)
    poses, presence = tf.zeros((1, PARTS, 2, 3)), tf.ones((1, PARTS))
    with tf.GradientTape() as tape:
        tape.watch(numbers)
        outputs = layer(numbers)
        density, _, explained = VoteMixture()(*outputs[3:6], poses, presence)
        total = tf.reduce_sum(density) + tf.reduce_sum(explained) + tf.reduce_sum(outputs[2])
    assert np.isfinite(total)
    for gradient in tape.gradient(total, [numbers, *layer.weights]):
        assert np.all(np.isfinite(gradient))


# Pictures


@pytest.fixture
def picture(rng):
    """Poses, logits and features of the parts of two images, and the images."""
    poses = np.array([[oracle.pose(0.7 * rng.normal(size=6)) for _ in range(PARTS)] for _ in range(2)])
    return (
        poses,
        rng.normal(size=(2, PARTS)),
        rng.normal(size=(2, PARTS, 3)),
        rng.random((2, *SIZE, 1)),
    )


@pytest.fixture
def renderer(picture):
    return made(
        TemplateMixture(PARTS, (*SIZE, 1), SIDE, deviation=0.3, hidden=6), *as_float32(picture), scale=0.7
    )


def weights_of(renderer, features):
    """What the oracle takes of a `TemplateMixture` for the features of one image."""
    values = {weight.path.partition("/")[2]: np.asarray(weight, "float64") for weight in renderer.weights}
    hidden = np.maximum(0, features @ values["colour_hidden/kernel"] + values["colour_hidden/bias"])
    colours = sigmoid(hidden @ values["colour/kernel"] + values["colour/bias"])[:, 0]
    templates = sigmoid(values["templates"][..., 0])
    background = sigmoid(values["background"]), oracle.softplus(values["background_alpha"])
    return templates, values["alphas"][..., 0], colours, background


def test_pixels_are_as_likely_as_the_oracle_says(renderer, picture):
    templates, means, likelihood = renderer(*as_float32(picture))
    for image in range(2):
        poses, logits, features, pixels = (array[image] for array in picture)
        flat, alphas, colours, background = weights_of(renderer, features)
        expected, mean = oracle.pixels_given_parts(
            pixels[..., 0], poses, np.log(sigmoid(logits)), flat, alphas, colours, background, 0.3
        )
        np.testing.assert_allclose(likelihood[image, ..., 0], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(means[image, ..., 0], mean, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(templates[image, ..., 0], flat * colours[:, None, None], rtol=1e-4)


def test_the_identity_stretches_a_template_over_the_picture(renderer, picture):
    _, _, features, images = as_float32(picture)
    drawn = oracle.draw(np.arange(25.0).reshape(5, 5), np.eye(2, 3), SIZE)
    np.testing.assert_allclose(drawn[[0, 0, -1, -1], [0, -1, 0, -1]], [0, 4, 20, 24])
    # The first part alone, as good as surely present, and opaque.
    renderer.alphas.assign(np.full(renderer.alphas.shape, 50.0, "float32"))
    logits = np.tile(np.float32([50, -90, -90, -90]), (2, 1))
    poses = np.tile(np.eye(2, 3, dtype="float32"), (2, PARTS, 1, 1))
    templates, means, _ = renderer(poses, logits, features, images)
    for image in range(2):
        expected = oracle.draw(np.asarray(templates[image, 0, ..., 0], "float64"), np.eye(2, 3), SIZE)
        np.testing.assert_allclose(means[image, ..., 0], expected, atol=1e-4)


def test_a_colour_is_of_its_part_and_image(renderer, picture):
    before = np.asarray(renderer(*as_float32(picture))[0])
    picture[2][1, 2] += 1
    after = np.asarray(renderer(*as_float32(picture))[0])
    changed = np.abs(after - before).max(axis=(2, 3, 4)) > 1e-4
    np.testing.assert_array_equal(changed, [[False] * 4, [False, False, True, False]])


def test_templates_begin_unlike_each_other_and_in_the_middle_of_greys():
    layer = TemplateMixture(PARTS, (*SIZE, 1), SIDE)
    layer.build((None, PARTS, 2, 3), (None, PARTS), (None, PARTS, 3))
    flat = np.reshape(layer.templates, (PARTS, -1))
    assert flat.min() == 0
    assert flat.max() == 1
    centred = flat - np.median(flat)
    similar = centred @ centred.T / np.outer(*[np.linalg.norm(centred, axis=1)] * 2)
    assert np.abs(similar - np.eye(PARTS)).max() < 0.3


@pytest.mark.parametrize("extreme", EXTREMES)
def test_gradients_of_pictures_are_finite_however_certain_parts_are(renderer, picture, extreme):
    _, _, features, images = as_float32(picture)
    poses = tf.constant(np.tile(oracle.pose(np.full(6, extreme)), (2, PARTS, 1, 1)), tf.float32)
    logits = tf.fill((2, PARTS), extreme)
    with tf.GradientTape() as tape:
        tape.watch([poses, logits])
        outputs = renderer(poses, logits, features, images)
        total = sum(tf.reduce_sum(ops.square(output)) for output in outputs)
    for array in (*outputs, *tape.gradient(total, [poses, logits, *renderer.weights])):
        assert np.all(np.isfinite(array))
