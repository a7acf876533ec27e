"""The options of smallNORB and synthnorb choose toys and viewpoints and prepare pairs as the capsule papers do."""

import dataclasses
import io
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capszoo.config import ConfigError, parse_section
from capszoo.data import cropping, smallnorb, synthnorb
from capszoo.data.augment import deform
from capszoo.data.preprocessing import Preprocessing
from capszoo.data.smallnorb import Smallnorb, Synthnorb
from capszoo.data.sources import DataNotFound

INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A prepared synthnorb of noise with all viewpoints, one lighting, and the toys of two categories."""
    from capszoo.data.synthnorb import builder

    def examples(seed, split, processes):
        rng = np.random.default_rng(len(split))
        for category, instance, elevation, azimuth in itertools.product(
            range(2), INSTANCES[split], range(9), range(18)
        ):
            left, right = (_png(rng.integers(0, 256, (96, 96), np.uint8)) for _ in range(2))
            yield (
                {
                    "label_category": category,
                    "instance": instance,
                    "label_elevation": elevation,
                    "label_azimuth": azimuth,
                    "label_lighting": 5,
                },
                left,
                right,
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "examples", examples)
        return synthnorb.generate(tmp_path_factory.mktemp("tfds")).parents[1]


def _png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG", compress_level=0)
    return file.getvalue()


@pytest.fixture(autouse=True)
def data_dir(prepared, monkeypatch):
    # The same folders in every test: what has been read from them is kept.
    for variable in ("TFDS_DATA_DIR", "CAPSZOO_DATA_DIR", "HOME"):
        monkeypatch.setenv(variable, str(prepared))


def test_toys_of_the_splits_are_disjoint():
    found = {
        split: set(Synthnorb().open(split).factors["instance"]) for split in ("train", "validation", "test")
    }
    assert found == {"train": {4, 6, 7, 8}, "validation": {9}, "test": {0, 1, 2, 3, 5}}


def test_one_can_train_on_all_training_toys():
    options = Synthnorb(validation_instance=None)
    assert set(options.open("train").factors["instance"]) == {4, 6, 7, 8, 9}
    with pytest.raises(ValueError, match="no validation split"):
        options.open("validation")


def test_the_raw_data_set_has_the_same_pairs_as_they_are_in_the_files():
    options = Synthnorb(size=48, crop=32, views="novel azimuth")
    raw, split = options.raw.open("test"), options.open("test")
    assert options.raw.image_shape == options.raw_shape == (96, 96, 2)
    np.testing.assert_array_equal(raw.factors["azimuth"], split.factors["azimuth"])
    pair = raw.batch(np.arange(3))["images"]
    np.testing.assert_array_equal(pair, raw.images[:3] / np.float32(255))
    # What the data set resizes it rounds to whole grey levels.
    prepared = Preprocessing(**options.preprocessing)(pair)
    np.testing.assert_allclose(prepared, split.batch(np.arange(3))["images"], atol=0.02)


@pytest.mark.parametrize(
    ("views", "factor", "degrees"),
    [
        ("familiar azimuth", "azimuth", {300, 320, 340, 0, 20, 40}),
        pytest.param("novel azimuth", "azimuth", set(range(60, 281, 20)), marks=pytest.mark.slow),
        pytest.param("familiar elevation", "elevation", {30, 35, 40}, marks=pytest.mark.slow),
        ("novel elevation", "elevation", set(range(45, 71, 5))),
    ],
)
def test_viewpoints_in_degrees_are_those_of_the_paper(views, factor, degrees):
    in_degrees = {"azimuth": lambda code: 20 * code, "elevation": lambda code: 30 + 5 * code}[factor]
    for split in ("train", "validation", "test"):
        opened = Synthnorb(views=views).open(split)
        assert {in_degrees(int(code)) for code in opened.factors[factor]} == degrees
        assert (
            len(opened)
            == len(Synthnorb().open(split)) * len(degrees) / {"azimuth": 18, "elevation": 9}[factor]
        )


def test_familiar_and_novel_views_make_up_the_whole():
    for factor in ("azimuth", "elevation"):
        parts = [len(Synthnorb(views=f"{kind} {factor}").open("test")) for kind in ("familiar", "novel")]
        assert sum(parts) == len(Synthnorb().open("test"))


def test_a_batch_holds_standardised_pairs_and_their_codes():
    split = Synthnorb().open("test")
    batch = split.batch(np.array([3, 500, 0]), None)
    assert batch["images"].shape == (3, *Synthnorb().image_shape) == (3, 32, 32, 2)
    assert batch["images"].dtype == np.float32
    np.testing.assert_allclose(batch["images"].mean((1, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(batch["images"].std((1, 2, 3)), 1, atol=1e-4)
    np.testing.assert_array_equal(batch["labels"], split.labels[[3, 500, 0]])
    assert set(batch) == {"images", "labels", "instance", "elevation", "azimuth", "lighting"}


def test_rows_are_in_the_order_of_their_factors():
    split = Synthnorb().open("test")
    codes = [
        split.labels,
        *(split.factors[name] for name in ("instance", "elevation", "azimuth", "lighting")),
    ]
    assert (np.lexsort(codes[::-1]) == np.arange(len(split))).all()


def test_channels_are_left_and_right_at_the_mean_of_two_by_two_pixels(prepared):
    import tensorflow_datasets as tfds

    split = Synthnorb(crop=48, standardise=False, jitter="raw").open("test")
    stored = tfds.load("synthnorb", data_dir=prepared, split="test[:5]", download=False)
    for example in tfds.as_numpy(stored):
        same = (split.labels == example["label_category"]) & (
            split.factors["instance"] == example["instance"]
        )
        same &= split.factors["elevation"] == example["label_elevation"]
        same &= split.factors["azimuth"] == example["label_azimuth"]
        (image,) = split.batch(np.flatnonzero(same), None)["images"]
        for channel, name in enumerate(("image", "image2")):
            mean = example[name].reshape(48, 2, 48, 2).mean((1, 3)) / 255
            np.testing.assert_allclose(image[..., channel], mean, atol=0.51 / 255)


@pytest.mark.parametrize("size", [32, 64, 96])
def test_resizing_a_ramp_gives_a_ramp(size):
    ramp = np.broadcast_to(2 * np.arange(96, dtype=np.uint8)[:, None, None], (1, 96, 96, 2))
    expected = 2 * np.clip((np.arange(size) + 0.5) * 96 / size - 0.5, 0, 95)
    np.testing.assert_allclose(cropping.resize(ramp, size)[0, :, 7, 1], expected, atol=0.51)


def test_evaluation_crops_the_middle():
    whole = (
        Synthnorb(crop=48, standardise=False, jitter="raw").open("test").batch(np.arange(4), None)["images"]
    )
    middle = Synthnorb(standardise=False, jitter="raw").open("test").batch(np.arange(4), None)["images"]
    np.testing.assert_array_equal(middle, whole[:, 8:40, 8:40])


def test_training_crops_every_window_and_each_whole():
    grid = np.arange(36, dtype=np.float32).reshape(1, 6, 6, 1).repeat(2000, 0)
    crops = cropping.crop(grid, 4, np.random.default_rng(0))
    corners, counts = np.unique(crops[:, 0, 0, 0], return_counts=True)
    assert set(corners) == {row * 6 + column for row in range(3) for column in range(3)}
    assert counts.min() > 150
    np.testing.assert_array_equal(crops - crops[:, :1, :1], grid[:, :4, :4] - grid[:, :1, :1])


def test_only_training_images_are_changed_and_only_with_a_generator():
    for split in ("train", "validation", "test"):
        opened, indices = Synthnorb().open(split), np.arange(8)
        straight = opened.batch(indices, None)["images"]
        np.testing.assert_array_equal(straight, opened.batch(indices, None)["images"])
        assert (opened.batch(indices, np.random.default_rng(0))["images"] != straight).any() == (
            split == "train"
        )


def test_equal_generators_change_equally():
    first, second = (
        Synthnorb().open("train").batch(np.arange(8), np.random.default_rng(1)) for _ in range(2)
    )
    np.testing.assert_array_equal(first["images"], second["images"])


def test_jitter_is_one_brightness_and_one_contrast_for_both_eyes():
    images = np.random.default_rng(0).random((500, 8, 8, 2), np.float32)
    out = cropping.jitter(images, np.random.default_rng(1), 63 / 255, 0.8)
    delta = (out.mean((1, 2)) - images.mean((1, 2))) * 255
    factor = out.std((1, 2)) / images.std((1, 2))
    np.testing.assert_allclose(delta[:, 0], delta[:, 1], atol=1e-3)
    np.testing.assert_allclose(factor[:, 0], factor[:, 1], rtol=1e-3)
    assert -63.001 <= delta.min() < -60
    assert 60 < delta.max() <= 63.001
    assert 0.199 <= factor.min() < 0.22
    assert 1.78 < factor.max() <= 1.801


def test_images_stay_in_the_unit_range_where_they_are_not_standardised():
    images = (
        Synthnorb(standardise=False, jitter="raw")
        .open("train")
        .batch(np.arange(100), np.random.default_rng(0))["images"]
    )
    assert images.min() >= 0
    assert images.max() <= 1


def test_an_empty_image_is_standardised_to_zeros():
    np.testing.assert_array_equal(cropping.standardise(np.full((1, 4, 4, 2), 0.5, np.float32)), 0)


def test_fingerprints_tell_evaluations_apart():
    options = [
        Synthnorb(),
        Synthnorb(crop=28),
        Synthnorb(standardise=False, jitter="raw"),
        Synthnorb(views="novel azimuth"),
    ]
    prints = [option.open("test").fingerprint() for option in options]
    assert len(set(prints)) == 4
    assert Synthnorb(brightness=0.0).open("test").fingerprint() == prints[0]


def test_one_name_leads_from_the_twin_to_smallnorb():
    twin, real = (parse_section("data", {"name": name, "crop": 40}) for name in ("synthnorb", "smallnorb"))
    assert (type(twin), type(real)) == (Synthnorb, Smallnorb)
    assert twin.image_shape == real.image_shape == (40, 40, 2)
    assert twin.class_names == real.class_names
    assert len(real.class_names) == real.num_classes == 5
    with pytest.raises(DataNotFound, match=r"'smallnorb' was not found(.|\n)*tfds.load\('smallnorb'\)"):
        real.open("test")


def test_what_is_missing_is_said_together_with_the_command_that_makes_it(no_data):
    with pytest.raises(
        DataNotFound, match=r"'synthnorb' was not found(.|\n)*python -m capszoo.data.synthnorb"
    ):
        Synthnorb().open("train")


def test_a_folder_that_is_still_being_written_is_not_read(no_data, prepared, monkeypatch):
    (no_data / "synthnorb").mkdir()
    (no_data / "synthnorb" / "incomplete.ABC_1.0.0").symlink_to(prepared / "synthnorb" / "1.0.0")
    monkeypatch.setenv("TFDS_DATA_DIR", str(no_data))
    with pytest.raises(DataNotFound):
        Synthnorb().open("train")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"crop": 49}, r"crop must be in \[1, 48\].* Received: 49"),
        ({"contrast": 1.5}, "contrast must be at most 1. Received: 1.5"),
        ({"brightness": -1.0}, "brightness must be at least 0. Received: -1.0"),
        ({"brightness": float("inf")}, "brightness must be at most 255. Received: inf"),
        ({"turn": 181}, "turn must be at most 180. Received: 181"),
        ({"stretch": 1.0}, "stretch must be at most 0.9. Received: 1.0"),
        ({"stretch": -0.1}, "stretch must be at least 0. Received: -0.1"),
        ({"standardise": False}, "jitter of standardised images needs standardise"),
        ({"validation_instance": 3}, r"3 is not allowed.*4, 6, 7, 8, 9"),
        ({"views": "novel"}, r"'novel' is not allowed"),
        ({"azimuth": 3}, "unknown key"),
    ],
)
def test_options_out_of_range_are_refused(option, message):
    with pytest.raises(ConfigError, match=message):
        parse_section("data", {"name": "synthnorb", **option})


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match=r"train, validation, test\. Received: 'valid'"):
        Synthnorb().open("valid")


def test_jitter_after_standardising_changes_what_the_network_sees():
    rng = np.random.default_rng
    split = Synthnorb().open("train")
    images = split.batch(np.arange(500), rng(0))["images"]
    # Up to two deviations of brightness, and a contrast of 0.5 to 1.5.
    assert np.abs(images.mean((1, 2, 3))).max() > 1.9
    deviation = (images - images.mean((1, 2), keepdims=True)).std((1, 2, 3))
    assert deviation.min() < 0.55
    assert deviation.max() > 1.45


def test_toys_are_deformed_before_the_crop_and_backgrounds_go_on():
    options = {"crop": 48, "brightness": 0.0, "contrast": 0.0}
    still, changed = Synthnorb(**options), Synthnorb(**options, turn=20, stretch=0.2)
    raw = still.raw
    seen = dataclasses.replace(raw, size=48, crop=48).open("train").batch(np.arange(8), None)["images"]
    deformed = deform(seen, np.random.default_rng(0), 20, 0.2, outside="edge")
    batch = changed.open("train").batch(np.arange(8), np.random.default_rng(0))["images"]
    np.testing.assert_allclose(batch, cropping.standardise(deformed), atol=1e-5)
    assert (batch != still.open("train").batch(np.arange(8), np.random.default_rng(0))["images"]).any()
    for part in ("validation", "test"):
        seen, alike = (
            data.open(part).batch(np.arange(8), np.random.default_rng(0))["images"]
            for data in (changed, still)
        )
        np.testing.assert_array_equal(seen, alike)


def test_standardising_after_the_jitter_undoes_it():
    images = (
        Synthnorb(jitter="raw", brightness=63.0, contrast=0.8)
        .open("train")
        .batch(np.arange(100), np.random.default_rng(0))["images"]
    )
    np.testing.assert_allclose(images.mean((1, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(images.std((1, 2, 3)), 1, atol=1e-4)


def test_a_copy_that_lacks_pairs_is_damaged_too(prepared, no_data):
    """A shard that was cut between two records reads like a whole one."""
    folder = Path(shutil.copytree(prepared, no_data / "tfds"))
    (shard,) = (folder / "synthnorb").glob("*/*-train.tfrecord*")
    contents = shard.read_bytes()
    # A record: length, its checksum, the data, their checksum.
    shard.write_bytes(contents[: 8 + 4 + int.from_bytes(contents[:8], "little") + 4])
    with pytest.raises(ValueError, match=r"cannot be read: .*1620 elements.* only 1"):
        smallnorb.read_pairs("synthnorb", "train", 48, (folder,))


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_a_damaged_copy_is_an_error_of_one_line_that_names_it(prepared, no_data, monkeypatch, damage):
    folder = Path(shutil.copytree(prepared, no_data / "tfds"))
    (shard,) = (folder / "synthnorb").glob("*/*-train.tfrecord*")
    contents = bytearray(shard.read_bytes())
    if damage == "cut":
        contents = contents[: len(contents) // 2]
    else:
        contents[len(contents) // 2 :: 7] = bytes(len(contents[len(contents) // 2 :: 7]))
    shard.write_bytes(contents)
    with pytest.raises(ValueError, match=r"synthnorb.*: the prepared copy cannot be read") as error:
        smallnorb.read_pairs("synthnorb", "train", 48, (folder,))
    assert "\n" not in str(error.value)
