"""Docstrings as Markdown, for the API pages: an extension of Griffe, which reads them.

The house's docstrings have a list after `where:`, and paragraphs that begin with `Errors:`, `Source:` and
`Differs from ...:`. A list becomes a Markdown list, and the word that begins a paragraph bold.
"""

import re

import griffe

OPENING = re.compile(r"^(Errors|Warns|Returns|Source|Differs from [^:]+):", re.MULTILINE)
ITEM = re.compile(r"^  (\S[^\n:]*?): ")  # "  name, other: what it is"


class Sections(griffe.Extension):
    """Rewrites the docstring of every object that Griffe finds."""

    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text):
    """A docstring, without the indentation of its code, as Markdown."""
    lines, listed, example = [], False, False
    for line in text.splitlines():
        if example != ((example and bool(line.strip())) or line.startswith(">>> ")):
            example = not example
            lines.append("```pycon" if example else "```")
        if line.startswith("where:"):
            listed = True
            lines += ["where:", ""]
        elif listed and not line.startswith("  "):
            listed = False
            lines += ["", line] if line.strip() else [line]
        elif listed and ITEM.match(line):
            lines.append(ITEM.sub(r"- **\1**: ", line))
        else:
            lines.append(line)
    lines += ["```"] * example
    # Each of these begins a paragraph of its own.
    return OPENING.sub(r"\n**\1:**", "\n".join(lines))
