import numpy as np
import pytest

from capszoo.data import Mnist, MultiMnist

ALL = np.arange(40)


def test_an_image_is_its_two_digits_added_and_clipped(tiny_data):
    batch = MultiMnist(validation=20).open("test").batch(ALL, None)
    assert batch["images"].shape == (40, 36, 36, 1)
    assert batch["sources"].shape == (40, 2, 36, 36, 1)
    np.testing.assert_allclose(batch["images"], np.minimum(batch["sources"].sum(axis=1), 1), atol=1e-6)
    assert (batch["sources"].sum(axis=1) > 1).any()


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_two_digits_are_of_different_classes(tiny_data, split):
    opened = MultiMnist(validation=20).open(split)
    for rng in (None, np.random.default_rng(0)):
        labels = opened.batch(np.arange(len(opened)), rng)["labels"]
        assert labels.shape == (len(opened), 2)
        assert (labels[:, 0] != labels[:, 1]).all()


def test_each_source_is_a_digit_of_its_label(tiny_data):
    digits = Mnist(validation=20, pad=4).open("test").batch(ALL, None)
    label_of = dict(zip((i.tobytes() for i in digits["images"]), digits["labels"].tolist(), strict=True))
    batch = MultiMnist(validation=20, shift=0).open("test").batch(ALL, None)
    for sources, labels in zip(batch["sources"], batch["labels"], strict=True):
        assert [label_of[source.tobytes()] for source in sources] == labels.tolist()


def test_every_digit_is_first_once_and_pairs_stay_within_the_split(tiny_data, image_set):
    digits = Mnist(validation=20, pad=4).open("test").batch(ALL, None)["images"]
    sources = MultiMnist(validation=20, shift=0).open("test").batch(ALL, None)["sources"]
    np.testing.assert_array_equal(sources[:, 0], digits)
    assert image_set(sources[:, 1]) <= image_set(digits)


def test_evaluation_pairs_are_fixed_by_seed_and_index(tiny_data):
    few, many, other = (
        MultiMnist(validation=20, pairs_per_image=pairs, seed=seed).open("test")
        for pairs, seed in ((1, 0), (9, 0), (1, 1))
    )
    assert len(many) == 9 * len(few)
    np.testing.assert_array_equal(few.batch(ALL, None)["images"], many.batch(ALL, None)["images"])
    np.testing.assert_array_equal(
        few.batch(ALL, None)["images"][[7, 3]], few.batch(ALL[[7, 3]], None)["images"]
    )
    assert (few.batch(ALL, None)["images"] != other.batch(ALL, None)["images"]).any(axis=(1, 2, 3)).all()
    assert (many.batch(ALL, None)["images"] != many.batch(ALL + 40, None)["images"]).any(axis=(1, 2, 3)).all()


def test_every_digit_of_another_class_can_be_the_partner(tiny_data, image_set):
    opened = MultiMnist(validation=20, shift=0, pairs_per_image=400).open("test")
    digits = Mnist(validation=20, pad=4).open("test").batch(ALL, None)
    partners = opened.batch(5 + 40 * np.arange(400), None)["sources"][:, 1]
    assert image_set(partners) == image_set(digits["images"][digits["labels"] != digits["labels"][5]])


def test_the_two_digits_are_shifted_independently_up_to_the_reach(tiny_data):
    indices = 40 * np.arange(300)
    still, shifted = (
        MultiMnist(validation=20, shift=shift, pairs_per_image=300)
        .open("test")
        .batch(indices, None)["sources"]
        for shift in (0, 3)
    )
    offsets = (corner(shifted) - corner(still)).reshape(300, 4)
    assert (offsets.min(axis=0) == -3).all()
    assert (offsets.max(axis=0) == 3).all()
    correlation = np.corrcoef(offsets.T) - np.eye(4)
    assert np.abs(correlation).max() < 0.25


def corner(images):
    """The first row and the first column with ink, [..., 2], of images [..., H, W, 1]."""
    ink = images[..., 0] > 0
    return np.stack([ink.any(axis=-1).argmax(axis=-1), ink.any(axis=-2).argmax(axis=-1)], axis=-1)


def test_the_fingerprint_tells_what_the_test_images_depend_on(tiny_data):
    def fingerprint(**options):
        return MultiMnist(**{"validation": 20, **options}).open("test").fingerprint()

    assert fingerprint() == fingerprint(validation=10)
    assert len({fingerprint(), fingerprint(seed=1), fingerprint(shift=2)}) == 3


@pytest.mark.parametrize("options", [{"shift": -1}, {"pairs_per_image": 0}, {"validation": -1}, {"seed": -1}])
def test_illegal_options_are_refused(options):
    with pytest.raises(ValueError, match="Received"):
        MultiMnist(**options)


def test_a_split_of_one_class_has_no_pairs(tiny_data):
    with pytest.raises(ValueError, match="two classes"):
        MultiMnist(validation=1).open("validation")
