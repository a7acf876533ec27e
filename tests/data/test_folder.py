"""A folder of pictures as a data set."""

import os
import sys

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image
from tiny_pictures import CLASSES, draw, seed_of, write_folder

from capszoo.config import ConfigError, parse_section, to_mapping
from capszoo.data import DataNotFound, Folder
from capszoo.data.folder import NAMED, SUFFIXES, _files
from capszoo.data.labelled import shares
from capszoo.training.recipe import dataset_of


def test_a_folder_is_a_class_and_pictures_get_one_size(tmp_path):
    data = Folder(path=str(write_folder(tmp_path / "pictures")), size=16, channels=1)
    assert data.class_names == CLASSES
    assert data.image_shape == (16, 16, 1)
    counts = {
        split: np.bincount(data.open(split).labels).tolist() for split in ("train", "validation", "test")
    }
    assert counts == {"train": [21] * 3, "validation": [3] * 3, "test": [6] * 3}


def test_a_folder_without_pictures_is_no_class_and_is_named(tmp_path, caplog):
    root = write_folder(tmp_path / "pictures")
    (root / "cow").mkdir()
    assert Folder(path=str(root)).class_names == CLASSES
    assert not caplog.records
    (root / "cow" / "1.jfif").touch()
    data = Folder(path=str(root))
    data.open("train")
    assert data.class_names == CLASSES
    assert [record.getMessage() for record in caplog.records] == [
        f"{root / 'cow'} holds no pictures ({', '.join(SUFFIXES)}), and is no class."
    ]


def test_size_and_channels_are_those_of_the_first_picture(tmp_path):
    assert Folder(path=str(write_folder(tmp_path / "pictures"))).image_shape == (24, 24, 3)


def test_folders_named_after_the_splits_are_the_splits(tmp_path):
    root = write_folder(tmp_path / "pictures", count=4, splits=("train", "test", "validation"))
    data = Folder(path=str(root))
    for number, split in enumerate(("train", "test", "validation")):
        images = data.open(split).batch(np.arange(12))["images"]
        first = draw(0, seed_of(number)) / np.float32(255)
        np.testing.assert_allclose(images[0], first, atol=1e-6)
        assert len(images) == 12


@pytest.mark.parametrize(
    "splits",
    [
        ("train", "validation"),
        ("train", "val"),
        ("train",),
        ("train", "test", "val"),
        ("Test", "Train"),
        ("training", "testing"),
        ("train", "test", "Validation"),
        ("train", "test", "dev"),
    ],
    ids=" ".join,
)
def test_splits_are_not_taken_for_classes_nor_passed_over(tmp_path, splits):
    root = write_folder(tmp_path / "pictures", count=2, splits=splits)
    with pytest.raises(ConfigError, match=f"Received: {', '.join(sorted(splits))}"):
        Folder(path=str(root))


def test_a_folder_beside_splits_does_not_make_them_classes(tmp_path):
    root = write_folder(tmp_path / "pictures", count=2, splits=("train", "val"))
    (root / "annotations").mkdir()
    with pytest.raises(ConfigError, match="Received: annotations, train, val"):
        Folder(path=str(root))


def test_a_class_may_be_called_like_a_split(tmp_path):
    root = write_folder(tmp_path / "pictures", count=2)
    (root / CLASSES[0]).rename(root / "test")
    assert Folder(path=str(root)).class_names == (*CLASSES[1:], "test")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_text_is_a_name(tmp_path):
    root = write_folder(tmp_path / "pictures", count=4)
    path = os.fsencode(root / CLASSES[0] / "0.png")
    os.rename(path, path.replace(b"0.png", b"caf\xe9.png"))
    assert len(Folder(path=str(root), test=0.25, validation=0.25).open("train").labels) == 6


def test_two_pictures_of_a_class_leave_none_for_validation(tmp_path):
    data = Folder(path=str(write_folder(tmp_path / "pictures", count=2)))
    with pytest.raises(ValueError, match=r"'validation' has no pictures; .*or data\.validation=0"):
        data.open("validation")


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_a_picture_of_each_class_is_left_to_train(count):
    parts = shares([f"{i}.png" for i in range(count)], [0] * count, 0.9, 0.05)
    assert np.count_nonzero(parts == "train") == 1


def test_hidden_folders_are_passed_over_at_every_depth(tmp_path):
    root = write_folder(tmp_path / "pictures", count=4)
    (root / CLASSES[0] / ".ipynb_checkpoints").mkdir()
    (root / CLASSES[0] / "0.png").rename(root / CLASSES[0] / ".ipynb_checkpoints" / "0.png")
    data = Folder(path=str(root), test=0.25, validation=0.25)
    assert sum(len(data.open(split).labels) for split in ("train", "validation", "test")) == 11


def test_single_pictures_of_a_pairs_network_are_refused_with_what_takes_them(tmp_path):
    data = Folder(path=str(write_folder(tmp_path / "pictures", count=4)), channels=2, size=24)
    with pytest.raises(ValueError, match=r"stereo pair.*Single pictures are read with data\.channels=1 or 3"):
        data.open("train")


def test_hidden_files_are_passed_over(tmp_path):
    root = write_folder(tmp_path / "pictures", count=4)
    (root / CLASSES[0] / "._0.png").write_bytes(b"what macOS keeps of a file elsewhere")
    data = Folder(path=str(root), test=0.25, validation=0.25)
    assert sum(len(data.open(split).labels) for split in ("train", "validation", "test")) == 12


def test_files_that_have_changed_are_read_again(tmp_path):
    data = Folder(path=str(write_folder(tmp_path / "pictures", count=2)), test=0.5, validation=0)
    before = data.open("train").images.copy()
    for path in (tmp_path / "pictures" / CLASSES[0]).iterdir():
        Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    after = data.open("train").images
    np.testing.assert_array_equal(after[0], 255 - before[0])
    np.testing.assert_array_equal(after[1:], before[1:])


def test_a_folder_is_no_picture_whatever_its_name(tmp_path):
    root = write_folder(tmp_path / "pictures", count=4)
    (root / CLASSES[0] / "album.png").mkdir()
    (root / CLASSES[0] / "0.png").rename(root / CLASSES[0] / "album.png" / "0.png")
    data = Folder(path=str(root), test=0.25, validation=0.25)
    assert sum(len(data.open(split).labels) for split in ("train", "validation", "test")) == 12


def test_pictures_behind_a_link_to_a_folder_are_found_once(tmp_path):
    root = write_folder(tmp_path / "pictures", count=4)
    more = write_folder(tmp_path / "more", count=3)
    (root / CLASSES[0] / "more").symlink_to(more / CLASSES[0])
    # Where links lead back there are no more pictures.
    (more / CLASSES[0] / "again").symlink_to(more / CLASSES[0])
    (root / CLASSES[1] / "up").symlink_to(root)
    data = Folder(path=str(root), test=0.25, validation=0.25)
    labels = np.concatenate([data.open(split).labels for split in ("train", "validation", "test")])
    assert np.bincount(labels).tolist() == [7, 4, 4]


def test_of_two_links_to_a_folder_the_first_visible_one_counts(tmp_path):
    root, store = write_folder(tmp_path / "pictures", count=2), write_folder(tmp_path / "store", count=3)
    for name in (".hidden", "b", "a"):
        (root / CLASSES[0] / name).symlink_to(store / CLASSES[0])
    found = [
        path.relative_to(root / CLASSES[0]).parts[0] for path, name in _files(root) if name == CLASSES[0]
    ]
    assert found == ["0.png", "1.png", "a", "a", "a"]


def test_an_upright_photograph_is_upright_and_big_endian_grey_is_grey(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "grey" / name).mkdir(parents=True)
        exif = Image.Exif()
        exif[0x0112] = 6  # to be shown turned clockwise by a quarter
        for i in range(4):
            Image.new("RGB", (60, 20)).save(tmp_path / "photos" / name / f"{i}.jpg", exif=exif)
            Image.frombytes("I;16B", (6, 4), bytes(48)).save(tmp_path / "grey" / name / f"{i}.tiff")
    assert Folder(path=str(tmp_path / "photos")).image_shape == (60, 20, 3)
    assert Folder(path=str(tmp_path / "grey")).image_shape == (4, 6, 1)


def test_a_first_picture_that_is_none_is_refused_by_name_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_: pytest.fail("Ghostscript was called"))
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "0.jpg"
    Image.new("L", (9, 9)).save(path, "EPS")
    with pytest.raises(ValueError, match=r"readable picture file.*0\.jpg"):
        Folder(path=str(tmp_path))
    Image.fromarray(draw(0, 0)).save(path)
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(ValueError, match=r"readable picture file.*0\.jpg"):
        Folder(path=str(tmp_path))


@pytest.mark.parametrize(("count", "end"), [(1, ")"), (3, "1.png, {}/2.png"), (NAMED + 2, ", ...")])
def test_all_pictures_that_cannot_be_read_are_named_together(tmp_path, count, end):
    folder = write_folder(tmp_path / "pictures") / CLASSES[0]
    data = Folder(path=str(tmp_path / "pictures"), test=0.01, validation=0)
    for number in range(count):
        (folder / f"{number}.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"readable picture file.*0\.png") as error:
        data.open("train")
    assert str(error.value).endswith(end.format(folder))
    assert (f"{count - 1} more cannot be read" in str(error.value)) == (count > 1)


def test_a_picture_stays_in_its_split_when_others_are_added():
    keys = [f"cat/{i}.png" for i in range(20)]
    before = shares(keys, [0] * 20, 0.2, 0.1)
    after = shares([*keys, *(f"dog/{i}.png" for i in range(20))], [0] * 20 + [1] * 20, 0.2, 0.1)
    np.testing.assert_array_equal(after[:20], before)
    np.testing.assert_array_equal(shares(keys[::-1], [0] * 20, 0.2, 0.1)[::-1], before)


def test_a_pair_lies_side_by_side(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(5):
            pair = np.concatenate([np.full((8, 8), 10), np.full((8, 8), 200)], axis=1).astype("uint8")
            Image.fromarray(pair).save(tmp_path / name / f"{i}.png")
    data = Folder(path=str(tmp_path), channels=2)
    assert data.image_shape == (8, 8, 2)
    assert data.open("train").images[0, 0, 0].tolist() == [10, 200]


def test_a_recipe_is_read_where_its_pictures_are_not(tmp_path):
    data = Folder(path=str(write_folder(tmp_path / "pictures", count=2)), size=16)
    (tmp_path / "pictures").rename(tmp_path / "gone")
    assert parse_section("data", to_mapping(data)) == data
    with pytest.raises(DataNotFound, match="no pictures in"):
        data.open("train")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"size": 0}, r"size must be at least 1\. Received: \(0, 0\)"),
        ({"size": 16, "shift": 17}, "shift must be at most 16. Received: 17"),
        ({"shift": -1}, "shift must be at least 0. Received: -1"),
        ({"class_names": [*CLASSES, CLASSES[0]]}, "class_names must differ. Received: "),
    ],
)
def test_options_out_of_range_are_refused(option, message, tmp_path):
    path = str(write_folder(tmp_path / "pictures", count=2))
    with pytest.raises(ConfigError, match=message):
        parse_section("data", {"name": "folder", "path": path, **option})


def test_what_is_no_set_of_pictures_is_refused(tmp_path):
    with pytest.raises(DataNotFound, match=r"data\.path=FOLDER"):
        Folder()
    with pytest.raises(DataNotFound, match="a folder for each class"):
        Folder(path=str(tmp_path))
    root = write_folder(tmp_path / "pictures", count=2)
    with pytest.raises(ConfigError, match="leave something to train"):
        parse_section("data", {"name": "folder", "path": str(root), "test": 0.6, "validation": 0.5})
    (root / CLASSES[0] / "broken.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"broken\.png"):
        Folder(path=str(root)).open("train"), Folder(path=str(root)).open("test")


def test_a_set_of_pictures_is_called_by_its_folder(tmp_path):
    data = Folder(path=str(write_folder(tmp_path / "My stripes")))
    assert data.set_name == dataset_of(to_mapping(data)) == "folder My stripes"
    assert dataset_of({"name": "folder"}) == "folder"


def test_a_class_whose_name_could_not_be_written_is_refused(tmp_path):
    """As of an archive from a system with another encoding: the card would fail after the training."""
    root = write_folder(tmp_path / "pictures")
    try:
        os.rename(root / CLASSES[0], os.fsencode(root) + b"/K\xe4fer")
    except OSError:
        pytest.skip("this file system takes no such names")
    with pytest.raises(ValueError, match=r"class_names must be texts of UTF-8.* Received: 'K\\udce4fer'"):
        Folder(path=str(root))
