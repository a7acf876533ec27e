"""What every registered data set obeys, on tiny copies in the published formats."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_norb
import tiny_pictures
from scipy.io import savemat
from tiny import draw_bars, write_idx, write_mnist
from tiny_objects import read_photographs, read_views

import capszoo.data
from capszoo import config
from capszoo.data import affnist, coil20, eth80, smallnorb
from capszoo.data.cropping import standardise
from capszoo.data.pipeline import Batches
from capszoo.data.split import ArraySplit, RenderedSplit
from capszoo.data.tfds import Tfds
from capszoo.zoo.recipes import dataset_of, parse_recipe

SPLITS = ("train", "validation", "test")
# Options that fit the tiny copies; a data set that is not named here is read with its defaults.
DIGITS = {"validation": 20}
OPTIONS = {
    "mnist": DIGITS,
    "fashion_mnist": DIGITS,
    "affnist_synth": {**DIGITS, "transforms": 2},
    "multimnist": DIGITS,
    "rotated_mnist": DIGITS,
    "coil20": {"size": 24, "crop": 18, "standardise": False, "jitter": "raw"},
    "eth80": {"size": 24, "crop": 18},
    "smallnorb": {"size": 24, "crop": 18},
    "tfds": {"set": "tiny_pictures", "size": 12, "standardise": True},
    "synthnorb": {"size": 24, "crop": 18, "standardise": False, "jitter": "raw"},
}
NAMES = sorted(
    name
    for name, known in config.sections("data").items()
    if known.__module__.startswith(capszoo.data.__name__)
)


@pytest.fixture(scope="module", autouse=True)
def copies(tmp_path_factory):
    """The only data there are.

    MNIST and Fashion-MNIST of 80 and 40 bars, affNIST of 4 digits, NORB of 150 pairs, and a few objects.
    """
    root = write_mnist(tmp_path_factory.mktemp("data"), train=80, test=40)
    for seed, (prefix, count) in enumerate((("train", 80), ("t10k", 40)), start=2):
        write_idx(root / "fashion_mnist", prefix, *draw_bars(count, seed))
    (root / "affnist").mkdir()
    for seed, name in enumerate(affnist.FILES.values()):
        images = np.random.default_rng(seed).integers(0, 256, (1600, 4 * 32)).astype("uint8")
        labels = np.tile(np.arange(4, dtype="uint8"), 32)[None]
        savemat(root / "affnist" / f"{name}.mat", {"affNISTdata": {"image": images, "label_int": labels}})
    tiny_pictures.write_folder(root / "pictures")
    tiny_pictures.prepare(root, "tiny_pictures")
    tiny_pictures.prepare(root, "tiny_secrets", test="secret")
    tiny_pictures.prepare(root, "tiny_tested", test="labelled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPTIONS, "folder", {"path": str(root / "pictures"), "shift": 1})
        patch.setenv("CAPSZOO_DATA_DIR", str(root))
        patch.setenv("TFDS_DATA_DIR", str(root / "none"))
        patch.setenv("HOME", str(root / "home"))
        patch.setattr(affnist, "DIGITS", dict.fromkeys(affnist.DIGITS, 4))
        patch.setattr(smallnorb, "read_pairs", tiny_norb.read_pairs)
        patch.setattr(eth80, "read_photographs", read_photographs)
        patch.setattr(coil20, "read_views", read_views)
        yield


@pytest.fixture(params=NAMES)
def data(request):
    return config.parse_section("data", {"name": request.param, **OPTIONS.get(request.param, {})})


@pytest.fixture(params=SPLITS)
def split(request, data):
    return data.open(request.param)


def stored(split):
    """The stored images that those of a split are made of, each as bytes."""
    assert isinstance(split, ArraySplit | RenderedSplit)
    images = split.images if isinstance(split, ArraySplit) else split._arrays["images"]
    return {image.tobytes() for image in images}


def assert_same(batch, expected):
    assert batch.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(batch[name], array, err_msg=name)


def test_it_says_what_its_classes_are_and_whose_the_data_are(data):
    assert data.num_classes >= 2
    assert len(data.class_names) == len(set(data.class_names)) == data.num_classes
    assert data.licence


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ("a", "b")}, "labels up to 2, more than the 2 class_names: a, b"),
        ({"label": "image"}, "label must name classes. Received: 'image'"),
        ({"image": "label"}, r"image must name pictures \[H, W, C\]. Received: 'label'"),
        ({"label": "kind"}, "no feature 'kind'"),
    ],
)
def test_features_that_are_not_pictures_and_classes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Tfds(set="tiny_pictures", **options).open("train")


def test_a_test_split_without_labels_is_none():
    data = Tfds(set="tiny_secrets", test=0.2, validation=0.1)
    labels = {split: data.open(split).labels for split in SPLITS}
    assert {split: len(found) for split, found in labels.items()} == {
        "train": 42,
        "validation": 6,
        "test": 12,
    }
    assert min(found.min() for found in labels.values()) == 0


def test_where_a_test_split_is_published_none_is_taken_out_of_training_images():
    data = Tfds(set="tiny_tested", test=0.2, validation=0.1)
    assert [len(data.open(split).labels) for split in SPLITS] == [54, 6, 60]


def test_plain_data_call_it_as_it_calls_itself(data):
    assert dataset_of(config.to_mapping(data)) == data.set_name


def test_a_set_is_known_by_its_own_name():
    data = Tfds(set="tiny_pictures")
    assert (data.set_name, data.benchmark) == ("tiny_pictures", "tiny_pictures")
    mapping = {"model": {"name": "dynamic", "channels": 4}, "data": config.to_mapping(data)}
    model = SimpleNamespace(predict_on_batch=lambda images: {"scores": np.eye(3)[np.zeros(len(images), int)]})
    assert capszoo.evaluate(model, parse_recipe("striped", mapping)).data == "tiny_pictures"


def test_as_plain_data_it_is_the_same_again(data):
    assert config.parse_section("data", config.to_mapping(data)) == data


def test_images_have_the_shape_and_range_that_a_model_is_promised(data, split):
    for rng in (None, np.random.default_rng(0)):
        images = split.batch(np.arange(len(split)), rng)["images"]
        assert images.dtype == np.float32
        assert images.shape == (len(split), *data.image_shape)
        assert np.isfinite(images).all()
        if not data.preprocessing.get("standardise"):
            assert images.min() >= 0
            assert images.max() <= 1


def test_pictures_before_preprocessing_are_pixels(data):
    images = data.raw.open("test").batch(np.arange(3), None)["images"]
    assert images.shape == (3, *data.raw_shape)
    assert images.min() >= 0
    assert 0.1 < images.max() <= 1


def test_unstandardised_images_are_those_a_model_sees_in_zero_to_one(data):
    grey = data.unstandardised
    assert not grey.preprocessing.get("standardise")
    images = grey.open("test").batch(np.arange(3), None)["images"]
    assert images.shape == (3, *data.image_shape)
    assert 0 <= images.min() < images.max() <= 1
    seen = data.open("test").batch(np.arange(3), None)["images"]
    expected = standardise(images) if data.preprocessing.get("standardise") else images
    np.testing.assert_allclose(seen, expected, atol=1e-5)


def test_labels_are_the_classes_of_each_image(data, split):
    batch = split.batch(np.arange(len(split)), None)
    count = data.labels_per_image
    assert batch["labels"].dtype == np.int64
    assert batch["labels"].shape == ((len(split), count) if count > 1 else (len(split),))
    assert set(np.unique(batch["labels"])) <= set(range(data.num_classes))
    assert len(np.unique(batch["labels"])) > 1
    if count > 1:
        assert (np.diff(np.sort(batch["labels"], axis=1), axis=1) > 0).all()
    assert all(len(array) == len(split) for array in batch.values())


def test_an_evaluation_image_is_the_same_for_ever_and_in_any_company(data, split):
    batch = split.batch(np.array([5, 0, 3]), None)
    assert_same(split.batch(np.array([5, 0, 3]), None), batch)
    alone = split.batch(np.array([3]), None)
    assert_same(alone, {name: array[2:] for name, array in batch.items()})


def test_a_training_batch_is_a_pure_function_of_seed_and_step(data):
    batches = Batches(data.open("train"), 8, seed=1)
    first = batches.batch_at(0)
    expected = batches.batch_at(4)
    assert_same(Batches(data.open("train"), 8, seed=1).batch_at(4), expected)
    for other in (first, Batches(data.open("train"), 8, seed=2).batch_at(4)):
        assert (other["images"] != expected["images"]).any()


def test_no_image_is_in_two_splits(data):
    images = {name: stored(data.open(name)) for name in SPLITS}
    assert all(images.values())
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not images[one] & images[other], (one, other)


def test_a_fingerprint_is_that_of_what_an_evaluation_sees(data):
    prints = [data.open(name).fingerprint() for name in SPLITS]
    assert prints == [data.open(name).fingerprint() for name in SPLITS]
    assert len(set(prints)) == len(SPLITS)
    assert all(re.fullmatch("[0-9a-f]{64}", each) for each in prints)


def test_it_validates_and_has_no_other_splits(data):
    assert data.validates
    with pytest.raises(ValueError, match="holdout"):
        data.open("holdout")
