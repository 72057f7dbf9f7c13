"""The documentation is correct: its Python runs, links lead to a target, pictures are up to date.

cmake/pages.cmake compiles and runs the cpp blocks.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pages
import pictures
import tidy

_PAGES = pages.pages()
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)


def name_of(page):
    return page.relative_to(pages.ROOT).as_posix()


def anchors(page):
    """The names that a link may use after '#', formed as code hosts form them."""
    headings = _HEADING.findall(page.read_text())
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", _PAGES, ids=name_of)
def test_the_python_blocks_of_the_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}  # all blocks of a page are one program
    for block in pages.blocks(page):
        if block.language != "python":
            continue
        where = f"{name_of(page)}:{block.line}"
        assert not block.info or re.fullmatch(r"no-run: .{10,}", block.info), (
            f"{where}: '{block.info}': a block that cannot run alone says why: 'no-run: needs ...'"
        )
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        if not block.info:
            exec(code, namespace)


@pytest.mark.parametrize("page", _PAGES, ids=name_of)
def test_the_links_of_the_page_have_targets(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in _LINK.findall(text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name_of(page)} links to {target}"
        assert not anchor or anchor in anchors(found), f"{name_of(page)} links to {target}"


# Names of files, and names that need a package which the tests do not install.
_NO_NAMES = {"reverie.lock", "reverie.service", "reverie.sock", "reverie.streams"}
_FIND_NAMES = """
import sys
import reverie

for name in sys.stdin.read().split():
    found = reverie
    try:
        for part in name.split(".")[1:]:
            found = getattr(found, part)
    except reverie.errors.MissingPackageError:
        pass
    except AttributeError as error:
        print(name, error)
"""


def test_names_on_pages_are_available_after_import_reverie():
    names = {
        name
        for page in _PAGES
        for name in re.findall(r"\breverie(?:\.[A-Za-z_]\w*)+", page.read_text())
    }
    assert len(names) > 80
    done = subprocess.run(
        [sys.executable, "-c", _FIND_NAMES],
        input="\n".join(sorted(names - _NO_NAMES)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("source", pictures.sources(), ids=lambda path: path.name)
def test_the_picture_is_up_to_date_with_its_source(source):
    drawn = source.with_suffix(".svg")
    assert drawn.exists(), f"{drawn.name} is missing: run 'make docs'"
    assert pictures.stamp(source) in drawn.read_text(), f"{drawn.name} is old: run 'make docs'"


@pytest.mark.parametrize(
    "page", [p for p in _PAGES if p.parent.name == "concepts"], ids=lambda path: path.stem
)
def test_each_concept_page_has_a_picture(page):
    assert re.search(r"!\[[^\]]+\]\([^)]*\.svg\)", page.read_text())


def test_the_architecture_picture_matches_rooms_toml():
    table = tidy.Table(pages.ROOT / "tools" / "rooms.toml")
    text = (pages.ROOT / "docs" / "pictures" / "house.dot").read_text()
    names = {f"{name.partition('/')[2]}_adapter": name for name in table.rooms if "/" in name}
    drawn = {
        (names.get(start, start), names.get(end, end))
        for start, ends in re.findall(r"^  (\w+) -> (\w+|\{[\w ]+\})", text, re.MULTILINE)
        for end in ends.strip("{ }").split()
        if start != "roof"
    }
    assert {room for edge in drawn for room in edge} == set(table.rooms)
    for start, end in drawn:
        assert end in table.reachable(start), f"{start} -> {end} is drawn, but not in the table"
    for start, room in table.rooms.items():
        reached, left = {start, "base"}, [start]
        while left:
            here = left.pop()
            new = {end for begin, end in drawn if begin == here} - reached
            reached |= new
            left += new
        assert reached >= set(room.steps), f"{start} may include {set(room.steps) - reached}"


def test_the_architecture_page_mentions_each_room():
    table = tidy.Table(pages.ROOT / "tools" / "rooms.toml")
    text = (pages.ROOT / "docs" / "concepts" / "house.md").read_text().partition("Where to read")[2]
    rooms = [room for room in table.rooms if (pages.ROOT / "src" / "reverie" / room).is_dir()]
    assert [room for room in rooms if not re.search(rf"(?<![\w/]){room}(?!\w)", text)] == []


def test_files_and_names_in_contributing_exist():
    text = (pages.ROOT / "CONTRIBUTING.md").read_text()
    rows = re.search(r"## Which file to change\n(.*?)\n## ", text, re.DOTALL)[1].splitlines()[3:]
    assert len(rows) >= 25
    for row in filter(None, rows):
        path, name = re.search(r"\| `([^`]+)`(?: \(`(\w+)`\))?[^|]*\|$", row).groups()
        assert (pages.ROOT / path).exists(), row
        assert not name or re.search(rf"\b{name}\b", (pages.ROOT / path).read_text()), row


def test_the_files_named_in_the_glossary_exist():
    text = (pages.ROOT / "docs" / "glossary.md").read_text()
    files = re.findall(r"\| `([^`]+\.h)` \|$", text, re.MULTILINE)
    assert len(files) >= 20
    for file in files:
        assert (pages.ROOT / "src" / "reverie" / file).exists(), file


# A sentence of a page, and the constant that it states.
_CONSTANTS = [
    ("docs/concepts/threads.md", "looks for up to {} us", "base/spin.h", r"kLookMax = .*\((\d+)\)"),
    ("docs/concepts/service.md", "looks for up to {} us", "base/spin.h", r"kLookMax = .*\((\d+)\)"),
    (
        "docs/concepts/net.md",
        "looks again for up to {} us",
        "base/spin.h",
        r"kLookMax = .*\((\d+)\)",
    ),
    ("docs/concepts/net.md", "up to {} of them", "base/spin.h", r"kSkipsMax = (\d+)"),
    ("docs/glossary.md", "at most {} items", "replay/table.h", r"kBreath = (\d+)"),
]


@pytest.mark.parametrize(("page", "says", "source", "pattern"), _CONSTANTS)
def test_a_constant_on_a_page_matches_the_code(page, says, source, pattern):
    text = " ".join((pages.ROOT / page).read_text().split())
    value = re.search(pattern, (pages.ROOT / "src/reverie" / source).read_text())[1]
    assert says.format(value) in text


def block(code, info=""):
    return pages.Block(Path("page.md"), 7, "cpp", info, code)


def test_code_blocks_have_language_info_and_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A\n\n```python no-run: needs a GPU\nf()\n```\n\n```cpp\ng();\n```\n")
    first, second = pages.blocks(page)
    assert (first.language, first.info, first.line) == ("python", "no-run: needs a GPU", 4)
    assert (second.language, second.info, second.code) == ("cpp", "", "g();\n")


def test_a_complete_cpp_program_is_unchanged():
    source = pages.cpp_source(block("int main() {}\n"))
    assert source == '#line 7 "page.md"\nint main() {}\n'


def test_cpp_statements_are_wrapped_in_a_function_after_their_includes():
    source = pages.cpp_source(block("#include <vector>\nstd::vector<int> v;\n"))
    assert source.index("#include <vector>") < source.index("Status snippet() {")
    assert source.index("Status snippet() {") < source.index("std::vector<int> v;")


def test_a_cpp_block_with_an_unknown_info_string_is_refused():
    with pytest.raises(ValueError, match="'no-run'"):
        pages.cpp_source(block("f();\n", info="no-run"))


# Words of the glossary that are not used in another sense as well.
_TERMS = re.compile(
    r"(?<![\w-])(accumulators?|actors?|all-reduces?|arenas?|breaths?|brokers?|chunks?|frame stacks?"
    r"|items?|learners?|leases?|limbo|parameter servers?|peers?|pins?|priority|priorities"
    r"|rate limiters?|selectors?|shards?|signatures?|staleness|tickets?|trajectory|trajectories"
    r"|transitions?|virtual batch(?:es)?)(?![\w-])"
)
_NO_PROSE = re.compile(
    r"```.*?```|`[^`\n]*`|^#[^\n]*|^    [^\n]*|!?\[[^\]]*\]\([^)]*\)|<[^>\n]*>|https?://\S+",
    re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize(
    "path",
    sorted((pages.ROOT / "docs").rglob("*.md")),
    ids=lambda path: path.relative_to(pages.ROOT).as_posix(),
)
def test_a_page_that_uses_a_word_of_the_glossary_links_it(path):
    text = path.read_text()
    found = _TERMS.search(_NO_PROSE.sub(" ", text))
    if path.name != "glossary.md" and found:
        assert "glossary.md)" in text, f"link '{found[0]}' to the glossary where it is first used"
