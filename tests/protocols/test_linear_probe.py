"""A linear classifier on what a network knows: fitted to upright digits or turned ones, tested on turned ones."""

import itertools

import numpy as np
import pytest
from PIL import Image

from capszoo.config import ConfigError
from capszoo.data import Mnist, RotatedMnist
from capszoo.protocols import evaluate, get_protocol, protocols
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")


class Coarse:
    """A network whose poses are the pixels themselves, coarsely, and whose logits are sums of rows of them."""

    def predict_on_batch(self, images):
        side = images.shape[1] // 4
        coarse = images.reshape(len(images), 4, side, 4, side).mean(axis=(2, 4))
        return {"poses": coarse, "logits": coarse.sum(axis=-1)}


class Blind:
    """A network that sees nothing, and says so in poses only."""

    def predict_on_batch(self, images):
        return {"poses": np.zeros((len(images), 2, 2))}


def recipe_of(model="probabilistic", **data):
    mapping = {"model": {"name": model}, "data": {"name": "mnist", "validation": 50, **data}}
    return parse_recipe("tiny", {**mapping, "card": {"protocols": {"probe": 0.03, "presence_probe": 0.04}}})


def test_every_probe_is_a_protocol_with_poses_and_without():
    probes = [name for name in protocols() if name.startswith("probe")]
    assert len(probes) == 11
    for name in probes:
        assert "poses" in get_protocol(name).outputs
        assert get_protocol(f"presence_{name}").outputs == ("logits",)


def test_features_are_logits_and_poses_side_by_side():
    split = Mnist(validation=50).open("test")
    features, labels = get_protocol("probe").features(Coarse(), split)
    outputs = Coarse().predict_on_batch(split.batch(np.arange(100), None)["images"])
    np.testing.assert_allclose(features[:, :4], outputs["logits"])
    np.testing.assert_allclose(features[:, 4:], outputs["poses"].reshape(100, 16))
    np.testing.assert_array_equal(labels, split.labels)
    np.testing.assert_allclose(get_protocol("presence_probe").features(Coarse(), split)[0], outputs["logits"])


def test_it_is_fitted_to_the_training_images_as_they_are_and_tested_on_turned_ones():
    data = get_protocol("probe_rotated_90").data(recipe_of()).open("test")
    turned = RotatedMnist(max_angle=90).open("test")
    rows = np.arange(20)
    np.testing.assert_array_equal(data.batch(rows)["images"], turned.batch(rows, None)["images"])
    upright = Mnist(validation=50).open("train")
    assert data.fitting.fingerprint() == upright.fingerprint()


def test_refitted_it_is_fitted_to_the_training_images_turned_as_far():
    data = get_protocol("probe_rotated_90_refitted").data(recipe_of(pad=6)).open("test")
    alone = get_protocol("probe_rotated_90").data(recipe_of(pad=6)).open("test")
    assert data.tested.fingerprint() == alone.tested.fingerprint()
    turned = RotatedMnist(validation=50, max_angle=90).open("train")
    assert len(data.fitting) == len(turned) == len(alone.fitting)
    rows = np.arange(20)
    fitted = data.fitting.batch(rows)
    np.testing.assert_array_equal(fitted["images"][:, 6:-6, 6:-6], turned.batch(rows, None)["images"])
    np.testing.assert_array_equal(fitted["labels"], Mnist(validation=50).open("train").labels[:20])
    with pytest.raises(ConfigError, match="refitted probes are of models of MNIST"):
        get_protocol("probe_rotated_90_refitted").data(recipe_of(name="fashion_mnist"))


def test_a_turned_digit_stands_in_the_middle_of_a_larger_canvas():
    data = get_protocol("probe_rotated_45").data(recipe_of(pad=6))
    assert data.image_shape == (40, 40, 1)
    images = data.open("test").batch(np.arange(5))["images"]
    plain = RotatedMnist(max_angle=45).open("test").batch(np.arange(5), None)["images"]
    np.testing.assert_array_equal(images[:, 6:-6, 6:-6], plain)
    assert images.sum() == pytest.approx(plain.sum())
    small = get_protocol("probe_rotated_45").data(recipe_of())
    assert data.open("test").fingerprint() != small.open("test").fingerprint()


def test_the_error_is_measured_and_named_beside_the_papers():
    known = evaluate(Coarse(), recipe_of(), "probe")
    assert known.metric == "linear probe test error"
    assert known.paper == 0.03
    assert known.n == 100
    assert known.value < 0.5 < evaluate(Blind(), recipe_of(), "probe").value
    assert evaluate(Coarse(), recipe_of(), "presence_probe").value > known.value


def test_the_fit_is_the_minimum_itself():
    data = get_protocol("probe").data(recipe_of()).open("test")
    features, labels = get_protocol("probe").features(Coarse(), data.fitting)
    scaler, regression = get_protocol("probe").fitted(Coarse(), data.fitting)
    standardised = scaler.transform(features)
    residual = regression.predict_proba(standardised) - np.eye(10)[labels]
    slope = (standardised.T @ residual + regression.coef_.T) / len(labels)
    assert abs(slope).max() < 2e-6
    assert abs(residual.mean(axis=0)).max() < 2e-6


def test_scores_are_probabilities_of_all_classes():
    split = get_protocol("probe").data(recipe_of()).open("test")
    for name in ("probe", "presence_probe"):
        scores, labels = get_protocol(name).predict(Coarse(), split)
        assert scores.shape == (100, 10)
        np.testing.assert_allclose(scores.sum(axis=-1), 1, rtol=1e-5)
        np.testing.assert_array_equal(labels, Mnist(validation=50).open("test").labels)


def test_presences_of_a_model_without_any_are_refused():
    with pytest.raises(ConfigError, match=r"needs a model with the output 'logits'\. Received one of: \w+"):
        evaluate(Blind(), recipe_of("vae"), "presence_probe")


def test_affine_digits_are_for_models_of_their_canvas():
    with pytest.raises(ConfigError, match="It is for models trained on images of that shape"):
        evaluate(Coarse(), recipe_of(), "probe_affnist_synth")
    assert evaluate(Coarse(), recipe_of(pad=6), "probe_affnist_synth").data == "affnist_synth"


def test_a_canvas_of_another_size_is_refused():
    with pytest.raises(ConfigError, match="turned digits are 28x28, or on 40x40"):
        get_protocol("probe_rotated_45").data(recipe_of(pad=3))


def test_probes_of_one_network_share_their_classifiers():
    class Counting(Coarse):
        seen = 0

        def predict_on_batch(self, images):
            self.seen += len(images)
            return super().predict_on_batch(images)

    model = Counting()
    names = ("probe", "probe_rotated_90", "presence_probe", "presence_probe_rotated_90")
    together = [evaluate(model, recipe_of(), name).value for name in names]
    # The training images once, and two sets of test images.
    assert model.seen == 250 + 2 * 100
    # Nothing was mixed up: alone, each says the same.
    assert together == [evaluate(Coarse(), recipe_of(), name).value for name in names]
    fitting = Mnist(validation=50).open("train")
    first, second, third, _ = (get_protocol(name).fitted(model, fitting) for name in names)
    assert first is second
    assert first is not third


@pytest.fixture
def bars(tmp_path):
    """The recipe of pictures of upright and of level bars: `bars(**data)`."""
    rng = np.random.default_rng(0)
    for split, name in itertools.product(("train", "test"), ("level", "upright")):
        (tmp_path / split / name).mkdir(parents=True)
        for number in range(8):
            picture = rng.integers(0, 60, (28, 28), dtype=np.uint8)
            picture[(slice(None), slice(8, 20))[:: 1 if name == "upright" else -1]] += 190
            Image.fromarray(picture).save(tmp_path / split / name / f"{number}.png")
    return lambda size=28, **data: recipe_of(
        name="folder", path=str(tmp_path), size=size, validation=0, **data
    )


@pytest.mark.parametrize(
    "protocol", ["probe_rotated_45", "probe_affnist_synth", "svm_transfer_affnist_synth"]
)
def test_a_classifier_of_pictures_is_not_tested_on_digits(bars, protocol):
    size = 40 if "affnist" in protocol else 28
    with pytest.raises(ConfigError, match=r"has the classes 0, 1, .* Received: a model of level, upright"):
        evaluate(Coarse(), bars(size), protocol)


def test_a_class_without_pictures_is_never_named(bars):
    found = evaluate(Coarse(), bars(class_names=["level", "upright", "slanting"]), "probe")
    assert (found.n, found.wrong) == (16, 0)
