import numpy as np
import pytest
from scipy.io import savemat

from capszoo.data import Affnist, DataNotFound, affnist
from capszoo.data.affnist import row_order

DIGITS = 4
LABELS = np.array([7, 2, 1, 0])  # of the digits of one split, in the published order
MAJOR = {"transform-major": np.tile(LABELS, 32), "digit-major": np.repeat(LABELS, 32)}


@pytest.fixture
def folder(no_data, monkeypatch):
    monkeypatch.setattr(affnist, "DIGITS", dict.fromkeys(affnist.DIGITS, DIGITS))
    (no_data / "affnist" / "transformed").mkdir(parents=True)
    (no_data / "affnist" / "just_centered").mkdir()
    return no_data / "affnist"


def write(path, labels, start=0):
    """Writes and returns images in affNIST's format; image i has grey level start + i in row 3, column 30."""
    images = np.zeros((len(labels), 40, 40), np.uint8)
    images[:, 3, 30] = start + np.arange(len(labels))
    path.parent.mkdir(exist_ok=True)
    savemat(
        path,
        {
            "affNISTdata": {
                "image": images.reshape(len(labels), 1600).T,
                "label_int": labels[None].astype(np.uint8),
            }
        },
    )
    return images


def test_a_single_file_is_read_upright_in_its_own_order(folder):
    images = write(folder / "transformed" / "test.mat", MAJOR["digit-major"])
    split = Affnist().open("test")
    np.testing.assert_array_equal(split.images[..., 0], images)
    np.testing.assert_array_equal(split.labels, MAJOR["digit-major"])


def test_the_transformed_file_may_lie_beside_the_folders(folder):
    write(folder / "test.mat", MAJOR["digit-major"])
    assert len(Affnist().open("test")) == 128


def test_batch_files_are_joined_by_number(folder):
    for number in range(32):
        write(folder / "transformed" / "training_batches" / f"{number + 1}.mat", LABELS, start=4 * number)
    write(
        folder / "transformed" / "training_batches" / "1 (1).mat", LABELS, start=0
    )  # as a browser saves it again
    split = Affnist().open("train")
    np.testing.assert_array_equal(split.images[:, 3, 30, 0], np.arange(128))
    np.testing.assert_array_equal(split.labels, MAJOR["transform-major"])


def test_the_centred_digits_are_a_version_of_their_own(folder):
    write(folder / "just_centered" / "validation.mat", LABELS)
    assert len(Affnist(version="centred").open("validation")) == DIGITS
    with pytest.raises(DataNotFound):
        Affnist().open("validation")


@pytest.mark.parametrize("order", MAJOR)
def test_the_labels_tell_the_order_of_the_rows_and_so_the_digit(folder, order):
    assert row_order(MAJOR[order], DIGITS) == order
    write(folder / "transformed" / "test.mat", MAJOR[order])
    digit = Affnist().open("test").batch(np.arange(128), None)["digit"]
    np.testing.assert_array_equal(LABELS[digit], MAJOR[order])
    np.testing.assert_array_equal(np.bincount(digit), [32] * DIGITS)


def test_an_order_that_is_neither_leaves_the_digit_open(folder):
    labels = np.random.default_rng(0).permutation(MAJOR["digit-major"])
    assert row_order(labels, DIGITS) == row_order(labels[:-1], DIGITS) == "unknown"
    write(folder / "transformed" / "test.mat", labels)
    assert (Affnist().open("test").factors["digit"] == -1).all()


def test_a_missing_batch_file_is_an_error(folder):
    for number in range(31):
        write(folder / "transformed" / "test_batches" / f"{number + 1}.mat", LABELS)
    with pytest.raises(ValueError, match=r"expected 128 images\. Received: 124"):
        Affnist().open("test")


def test_a_truncated_file_is_an_error_that_names_it(folder):
    path = folder / "transformed" / "test.mat"
    write(path, MAJOR["digit-major"])
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"test\.mat: not a readable affNIST file"):
        Affnist().open("test")


def test_a_file_with_images_in_rows_is_an_error(folder):
    struct = {"image": np.zeros((128, 1600), np.uint8), "label_int": np.zeros((1, 128), np.uint8)}
    savemat(folder / "test.mat", {"affNISTdata": struct})
    with pytest.raises(ValueError, match=r"expected image uint8 \[1600, N\]"):
        Affnist().open("test")


def test_missing_files_are_an_error_that_says_where_to_put_them(folder, monkeypatch):
    with pytest.raises(DataNotFound, match=r"transformed/test\.mat") as caught:
        Affnist().open("test")
    assert "tijmen/affNIST" in str(caught.value)
    monkeypatch.delenv("CAPSZOO_DATA_DIR")
    with pytest.raises(DataNotFound, match="CAPSZOO_DATA_DIR is not set"):
        Affnist().open("test")


def test_an_unknown_split_is_refused(folder):
    with pytest.raises(ValueError, match="Received: 'dev'"):
        Affnist().open("dev")
