import numpy as np
from PIL import Image

from capszoo.data.samples import digits, draw_digits, render_toys, toys


def test_every_digit_comes_from_two_hands():
    images, labels = digits()
    assert images.shape == (20, 28, 28, 1)
    assert images.dtype == np.float32
    np.testing.assert_array_equal(labels, np.repeat(np.arange(10), 2))
    assert len({image.tobytes() for image in images}) == 20


def test_drawing_anew_gives_the_shipped_pictures(tmp_path):
    draw_digits.main(tmp_path)
    shipped = sorted(path.name for path in draw_digits.FOLDER.iterdir())
    assert shipped == sorted(path.name for path in tmp_path.iterdir())
    for name in shipped:
        with Image.open(draw_digits.FOLDER / name) as old, Image.open(tmp_path / name) as new:
            assert old.mode == new.mode == "L"
            np.testing.assert_array_equal(np.asarray(old), np.asarray(new), err_msg=name)


def test_digits_are_prepared_as_mnist_is():
    axis = np.arange(28) + 0.5
    for image in digits()[0][..., 0]:
        assert image.max() == 1
        rows, columns = np.nonzero(image > 0.5)
        assert 19 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 21
        centre = [image.sum(1) @ axis, image.sum(0) @ axis] / image.sum()
        np.testing.assert_allclose(centre, 14, atol=0.05)


def test_every_category_has_a_toy():
    images, labels = toys()
    assert images.shape == (5, 96, 96, 2)
    np.testing.assert_array_equal(labels, np.arange(5))
    # Two cameras see the same toy from nearly the same place.
    for image in images:
        assert 0.001 < np.abs(image[..., 0] - image[..., 1]).mean() < 0.1


def test_photographing_anew_gives_the_shipped_toys():
    assert {path.stem for path in render_toys.FOLDER.iterdir()} == set(render_toys.TOYS)
    for name in render_toys.TOYS:
        with Image.open(render_toys.FOLDER / f"{name}.png") as shipped:
            difference = np.asarray(shipped).astype(int) - render_toys.render(name)
        # Another processor's rays may miss an edge that these hit.
        assert np.abs(difference).mean() < 0.5, name
