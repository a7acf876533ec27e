"""Drawings and what they show, as a page for a browser."""

import dataclasses
import html
import textwrap
from pathlib import Path

from matplotlib.figure import Figure

from capszoo.training.files import make_folder, write_figure, write_text

STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 2rem 0; } img { max-width: 100%; background: white; } figcaption { color: #444; }"""


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure, and what there is to know of it.

    where:
      name: of its file, without the ending.
      title: its heading; caption: what it shows and how to read it, in two sentences.
    """

    name: str
    title: str
    caption: str
    figure: Figure


def write_page(drawings, folder, heading):
    """Writes each of `drawings` as a PNG, and `index.html` with all of them and their captions, into a folder.

    where:
      heading: of the page.

    Yields each path once its file is written; the page comes last, and loads nothing but these pictures.
    """
    folder = Path(folder)
    make_folder(folder)
    figures = []
    for drawing in drawings:
        drawing.figure.suptitle(
            textwrap.fill(drawing.title, int(12 * drawing.figure.get_figwidth())), fontsize="medium"
        )
        path = folder / f"{drawing.name}.png"
        write_figure(drawing.figure, path, dpi=120)
        title, caption = html.escape(drawing.title), html.escape(drawing.caption)
        figures.append(
            f'<figure id="{drawing.name}">\n<h2>{title}</h2>\n<img src="{path.name}" alt="{title}">\n'
            f"<figcaption>{caption}</figcaption>\n</figure>"
        )
        yield path
    heading = html.escape(heading)
    page = folder / "index.html"
    write_text(
        page,
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{heading}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{heading}</h1>\n"
        + "\n".join(figures)
        + "\n</body>\n</html>\n",
    )
    yield page
