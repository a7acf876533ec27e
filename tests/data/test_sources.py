import gzip
import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from capszoo.data import sources
from capszoo.data.sources import DataNotFound, read_arrays, read_split

TRAIN = 60  # images in the training file of `tiny_data`


def test_idx_files_are_read_whole(tiny_data, draw_digits):
    arrays, (images, labels) = read_arrays("mnist", "train"), draw_digits(TRAIN, 0)
    assert arrays["image"].shape == (TRAIN, 28, 28, 1)
    assert arrays["image"].dtype == np.uint8
    expected = {(image.tobytes(), label) for image, label in zip(images, labels, strict=True)}
    assert {(i.tobytes(), n) for i, n in zip(arrays["image"], arrays["label"], strict=True)} == expected


def test_the_order_does_not_depend_on_the_order_in_the_files(
    tiny_data, no_data, monkeypatch, draw_digits, write_idx
):
    images, labels = draw_digits(TRAIN, 0)
    images[7], labels[7] = images[3], 9  # the same image under two labels
    order = np.arange(TRAIN)[::-1]
    write_idx(no_data / "straight", "train", images, labels)
    write_idx(no_data / "shuffled", "train", images[order], labels[order])
    straight, shuffled = (read_arrays("straight", "train"), read_arrays("shuffled", "train"))
    for key in ("image", "label"):
        np.testing.assert_array_equal(straight[key], shuffled[key])


def test_equal_images_lie_side_by_side(no_data, draw_digits, write_idx):
    images, labels = draw_digits(20, 0)
    write_idx(no_data / "mnist", "train", np.concatenate([images, images]), np.tile(labels, 2))
    image = read_arrays("mnist", "train")["image"]
    np.testing.assert_array_equal(image[::2], image[1::2])


def test_arrays_are_read_once_and_cannot_be_written_to(tiny_data):
    first, second = read_arrays("mnist", "test"), read_arrays("mnist", "test")
    assert first["image"] is second["image"]
    with pytest.raises(ValueError, match="read-only"):
        first["image"][0] = 1


def test_train_and_validation_divide_the_training_set(tiny_data, draw_digits, image_set):
    train, validation, test = (read_split("mnist", split, 15)[0] for split in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (45, 15, 40)
    assert not image_set(train) & image_set(validation)
    assert image_set(train) | image_set(validation) == image_set(draw_digits(TRAIN, 0)[0])
    assert not image_set(test) & (image_set(train) | image_set(validation))


def test_without_validation_all_images_are_for_training(tiny_data):
    assert len(read_split("mnist", "train", 0)[0]) == TRAIN
    with pytest.raises(ValueError, match="validation must leave images in 'validation'"):
        read_split("mnist", "validation", 0)


@pytest.mark.parametrize("validation", [-1, TRAIN])
def test_a_validation_split_that_leaves_nothing_is_refused(tiny_data, validation):
    with pytest.raises(ValueError, match=f"Received: {validation}"):
        read_split("mnist", "train", validation)


def test_an_unknown_split_is_refused(tiny_data):
    with pytest.raises(ValueError, match=r"train, validation, test\. Received: 'dev'"):
        read_split("mnist", "dev", 5)


def test_missing_data_says_where_it_was_looked_for_and_how_to_get_it(no_data):
    with pytest.raises(DataNotFound) as caught:
        read_arrays("mnist", "test")
    message = str(caught.value)
    for part in (
        "'mnist'",
        str(no_data / "tfds" / "mnist"),
        str(no_data / "mnist" / "t10k-images-idx3-ubyte.gz"),
    ):
        assert part in message
    for part in ("tfds.load('mnist')", "TFDS_DATA_DIR=", "CAPSZOO_DATA_DIR="):
        assert part in message


def test_data_that_appears_later_is_found(no_data, draw_digits, write_idx):
    with pytest.raises(DataNotFound):
        read_arrays("mnist", "train")
    write_idx(no_data / "mnist", "train", *draw_digits(TRAIN, 0))
    assert len(read_arrays("mnist", "train")["image"]) == TRAIN


def test_idx_files_do_without_tensorflow(tiny_data, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert len(read_arrays("mnist", "train")["image"]) == TRAIN
    with pytest.raises(DataNotFound, match=r"needs pip install(.|\n)*ways:\n  pip install"):
        read_arrays("smallnorb", "train")


def test_prepared_copies_come_first_only_where_tensorflow_does_the_work(monkeypatch):
    pytest.importorskip("tensorflow_datasets")
    for name, routes in (("tensorflow", ["tfds", "idx"]), ("jax", ["idx", "tfds"])):
        # As Keras says, once it is there; before, as it will read the variable.
        monkeypatch.setenv("KERAS_BACKEND", name)
        monkeypatch.setitem(
            sys.modules, "keras", SimpleNamespace(config=SimpleNamespace(backend=lambda name=name: name))
        )
        assert sources._routes() == routes
        monkeypatch.delitem(sys.modules, "keras")
        assert sources._routes() == routes


def test_the_newest_version_is_read_and_none_that_is_not_whole(tmp_path):
    for version in ("1.0.9", "1.0.10", "incomplete.A_9.0.0", "1.0.11.bak"):
        (tmp_path / "whole" / "toys" / version).mkdir(parents=True)
        (tmp_path / "whole" / "toys" / version / "dataset_info.json").touch()
    (tmp_path / "part" / "toys" / "incomplete.A_9.0.0").mkdir(parents=True)
    (tmp_path / "part" / "toys" / "incomplete.A_9.0.0" / "dataset_info.json").touch()
    newest = sources.newest_version("toys", [tmp_path / "part", tmp_path / "whole"])
    assert newest == tmp_path / "whole" / "toys" / "1.0.10"
    assert sources.newest_version("toys", [tmp_path / "part"]) is None


@pytest.fixture
def damaged(tiny_data, monkeypatch):
    """Makes a copy of MNIST in a folder of that name, as TensorFlow Datasets prepares one, that nobody can read."""
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")

    def make(name):
        copy = tiny_data / "tfds" / "mnist" / name
        copy.mkdir(parents=True)
        (copy / "dataset_info.json").write_text("{")

    return make


def test_a_prepared_copy_that_cannot_be_read_is_an_error(damaged):
    damaged("3.0.1")
    with pytest.raises(ValueError, match="the prepared copy cannot be read"):
        read_arrays("mnist", "train")


def test_a_copy_that_is_not_finished_is_passed_over(damaged):
    damaged("incomplete.ABC123_3.0.1")
    assert len(read_arrays("mnist", "train")["label"]) == TRAIN


def test_a_truncated_file_is_an_error_that_names_it(tiny_data):
    path = tiny_data / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz: truncated"):
        read_arrays("mnist", "train")


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>"])
def test_a_file_that_is_no_gzip_file_is_an_error_that_names_it(tiny_data, content):
    (tiny_data / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte\.gz"):
        read_arrays("mnist", "train")


def test_labels_in_place_of_images_are_an_error(tiny_data, draw_digits, write_idx):
    folder = tiny_data / "mnist"
    (folder / "train-labels-idx1-ubyte.gz").replace(folder / "train-images-idx3-ubyte.gz")
    write_idx(tiny_data / "other", "train", *draw_digits(TRAIN, 0))
    (tiny_data / "other" / "train-labels-idx1-ubyte.gz").replace(folder / "train-labels-idx1-ubyte.gz")
    with pytest.raises(ValueError, match="expected idx bytes in 3 dimensions"):
        read_arrays("mnist", "train")


def test_an_idx_file_cut_before_it_was_compressed_is_an_error(tiny_data):
    path = tiny_data / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-28]))
    with pytest.raises(ValueError, match=r"expected 47040 bytes for shape \(60, 28, 28\)\. Received: 47012"):
        read_arrays("mnist", "train")


def test_images_and_labels_of_unequal_number_are_an_error(no_data, draw_digits, write_idx):
    images, labels = draw_digits(TRAIN, 0)
    write_idx(no_data / "mnist", "train", images, labels[:-1])
    with pytest.raises(ValueError, match=r"expected 60 labels, one per image\. Received: 59"):
        read_arrays("mnist", "train")


def assert_both_routes_give_the_same(monkeypatch):
    arrays = {}
    for route in ("tfds", "idx"):
        monkeypatch.setattr(sources, "_routes", lambda route=route: [route])
        arrays[route] = [read_arrays("mnist", split) for split in ("train", "test")]
    for prepared, original in zip(arrays["tfds"], arrays["idx"], strict=True):
        assert prepared["image"] is not original["image"]
        for key in ("image", "label"):
            np.testing.assert_array_equal(prepared[key], original[key])
            assert prepared[key].dtype == original[key].dtype


def test_both_routes_give_the_same_arrays(tiny_data, draw_digits, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")

    def examples(*drawn):
        return [
            (number, {"image": image[..., None], "label": int(label)})
            for number, (image, label) in enumerate(zip(*draw_digits(*drawn), strict=True))
        ]

    tfds.dataset_builders.store_as_tfds_dataset(
        "mnist",
        version="3.0.1",
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(28, 28, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
        ),
        split_datasets={"train": examples(TRAIN, 0), "test": examples(40, 10)},
        data_dir=tiny_data / "tfds",
    )
    assert_both_routes_give_the_same(monkeypatch)
    # As TFDS wrote it before 3.3.
    (tiny_data / "tfds" / "mnist" / "3.0.1" / "features.json").unlink()
    sources._read.cache_clear()
    assert_both_routes_give_the_same(monkeypatch)


@pytest.mark.slow
@pytest.mark.data
def test_both_routes_give_the_same_mnist(real_mnist, monkeypatch):
    try:
        assert_both_routes_give_the_same(monkeypatch)
    except DataNotFound as error:
        pytest.skip(f"only one of the two routes is there: {error}")


def test_labels_of_more_than_ten_classes_are_an_error(no_data, draw_digits, write_idx):
    images, labels = draw_digits(TRAIN, 0)
    labels[3] = 10
    write_idx(no_data / "mnist", "train", images, labels)
    with pytest.raises(
        ValueError, match=r"train-labels-idx1-ubyte\.gz: expected labels below 10\. Received: 10"
    ):
        sources.read_arrays("mnist", "train")


def test_images_of_another_size_than_mnists_are_an_error(no_data, draw_digits, write_idx):
    images, labels = draw_digits(TRAIN, 0)
    write_idx(no_data / "mnist", "train", images[:, :27], labels)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz: expected images of \(28, 28\)"):
        sources.read_arrays("mnist", "train")
