"""Drawings are written with a page that shows and explains all of them."""

import re

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from capszoo.cli import app
from capszoo.data.samples import digits
from capszoo.visualize import Drawing, draw_reconstructions, write_page


def test_a_page_shows_every_drawing_with_its_caption_and_loads_nothing_else(tmp_path):
    images = np.zeros((1, 4, 4, 1))
    drawings = [
        Drawing(name, f"Title <{name}>", "Says & means. Reads so.", draw_reconstructions(images, images))
        for name in ("a", "b")
    ]
    assert [path.name for path in write_page(drawings, tmp_path, "Drawn")] == ["a.png", "b.png", "index.html"]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'src="([^"]+)"', page) == ["a.png", "b.png"]
    assert all((tmp_path / name).stat().st_size for name in ("a.png", "b.png"))
    assert page.count("<figcaption>Says &amp; means. Reads so.</figcaption>") == 2
    assert "Title &lt;b&gt;" in page
    assert "//" not in page
    assert drawings[0].figure.get_suptitle() == "Title <a>"


@pytest.mark.parametrize("inverted", [False, True])
def test_a_digit_that_is_dark_on_light_is_noticed(tmp_path, inverted):
    image = digits()[0][6, ..., 0]
    path = tmp_path / "drawn.png"
    Image.fromarray((255 * (1 - image if inverted else image)).astype("uint8")).save(path)
    result = CliRunner().invoke(app, ["predict", str(path)])
    assert result.exit_code == 0, result.output
    said = "drawn.png is dark on light, and dynamic_mnist has only seen light on dark: invert it."
    assert (said in result.stderr) == inverted
