"""The numbers in README.md and on the site are those of the cards."""

import importlib.util
import re
from pathlib import Path

import pytest

import capszoo

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages(tables):
    return {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in tables.pages()}


def test_tables_of_numbers_are_those_of_the_cards(tables):
    makers = set(tables.MAKERS) - tables.BUILDING
    for page, text in pages(tables).items():
        assert tables.written(text, makers) == text, f"{page}: `make tables` writes it anew"


@pytest.mark.slow
def test_tables_of_layers_are_those_of_the_networks(tables):
    for page, text in pages(tables).items():
        assert tables.written(text, tables.BUILDING) == text, f"{page}: `make tables` writes it anew"


def test_a_number_that_no_card_has_is_noticed(tables):
    text = pages(tables)["README.md"]
    value = tables._value(capszoo.get_preset("dynamic_mnist").card.metrics[0])
    assert value in text
    assert tables.written(text.replace(value, "0.01%")) == text


def test_the_readme_names_every_preset_with_weights(tables):
    readme = pages(tables)["README.md"]
    assert all(f"| `{name}` |" in readme for name in capszoo.list_models(pretrained=True))


def test_every_preset_with_weights_is_on_the_page_of_its_paper(tables):
    papers = "".join(text for page, text in pages(tables).items() if page.startswith("docs/papers/"))
    named = set(re.findall(r"^\| `(\w+)` \|", papers, re.MULTILINE))
    missing = [name for name in capszoo.list_models(pretrained=True) if name not in named]
    assert not missing, "add them to a `measured` table in docs/papers/"


def test_files_shown_in_pages_are_named_as_the_site_expects():
    """`--8<-- "FILE"`, alone in its line; anything else would stand on the page as it is."""
    shown = []
    for page in (ROOT / "docs").rglob("*.md"):
        for line in page.read_text(encoding="utf-8").splitlines():
            if re.match(r"-+8 ?<", line):
                mark = re.fullmatch(r'--8<-- "(.+)"', line)
                assert mark, f"{page.name}: {line}"
                shown.append(ROOT / mark[1])
    assert len(shown) > 8
    assert all(path.is_file() for path in shown)


def test_pages_that_pages_link_to_are_there():
    """Places in them, and pictures, which are drawn for the site, are checked where it is built, by name."""
    missing = []
    for page in (*ROOT.glob("*.md"), ROOT / "export" / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if target.endswith(".md") and "://" not in target and not (page.parent / target).exists():
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert not missing
