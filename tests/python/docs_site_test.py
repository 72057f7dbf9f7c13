"""The documentation site: the pages that it consists of, and what its checks find."""

import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import docs_site
import reverie

_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_NAV = re.compile(r"^ +- [^:\n]+: (?P<page>\S+\.md)$", re.MULTILINE)


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory):
    return docs_site.lay_out(tmp_path_factory.mktemp("site"))


def test_the_site_has_every_page_of_the_repository(laid_out):
    for place in laid_out.places.values():
        assert (laid_out.out / place).is_file(), place
    assert (laid_out.out / "index.md").read_text().startswith("# Reverie\n")


def test_links_lead_to_existing_pages(laid_out):
    checked = 0
    for page in sorted(laid_out.out.rglob("*.md")):
        if page.is_relative_to(laid_out.out / "source"):
            continue
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in _LINK.findall(text):
            if "://" not in target and not target.startswith("#"):
                assert (page.parent / target.partition("#")[0]).is_file(), f"{page}: {target}"
                checked += 1
    assert checked > 200


def test_the_menu_names_existing_pages(laid_out):
    pages = _NAV.findall((docs_site.ROOT / "mkdocs.yml").read_text())
    assert len(pages) > 40
    assert [page for page in pages if not (laid_out.out / page).is_file()] == []
    assert {f"api/{name}.md" for name in docs_site.API} <= set(pages)
    documents = docs_site.ROOT / "docs"
    assert {page.name for page in documents.glob("*.md")} - set(pages) == set()


def test_the_reference_names_existing_objects():
    for _, names in docs_site.API.values():
        for name in names:
            if name.startswith("contrib."):  # can only be imported with its library
                assert importlib.util.find_spec(f"reverie.{name}") is not None
            else:
                assert pkgutil.resolve_name(f"reverie.{name}") is not None


def test_the_reference_has_every_public_name():
    shown = set()
    for _, names in docs_site.API.values():
        for name in names:
            if name.startswith("contrib."):
                continue
            thing = pkgutil.resolve_name(f"reverie.{name}")
            shown.add(id(thing))
            if inspect.ismodule(thing):
                public = getattr(thing, "__all__", vars(thing))
                shown |= {id(getattr(thing, one)) for one in public if not one.startswith("_")}
    missing = [name for name in reverie.__all__ if id(getattr(reverie, name)) not in shown]
    assert [name for name in missing if name != "__version__"] == []


def test_info_strings_of_code_blocks_are_removed(laid_out):
    page = (laid_out.out / "coming_from_sb3.md").read_text()
    assert "```python\n" in page
    assert "no-run" not in page


def test_the_notebook_page_shows_the_output_of_its_cells(laid_out):
    page = (laid_out.out / "tutorial.md").read_text()
    assert "items, prioritized>" in page
    assert page.count('```text title="prints"') > 3


def test_the_output_of_a_cell_includes_its_last_expression():
    namespace = {}
    assert docs_site.run_cell("x = 3\nprint('a')\nx + 1", namespace) == "a\n4\n"
    assert docs_site.run_cell("None", namespace) == ""


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<p id="here"></p><a href="b.html#there">x</a>')
    (tmp_path / "b.html").write_text('<a href="a.html#here">x</a><a href="c.html">x</a>')
    found = list(docs_site.broken_links(tmp_path))
    assert found == ["a.html links to b.html#there", "b.html links to c.html"]


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs MkDocs")
def test_the_site_builds_without_broken_links():
    assert docs_site.main() == 0
    assert Path(docs_site.SITE / "api" / "replay.html").is_file()
