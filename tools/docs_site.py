"""Lays the documentation out for MkDocs: pages, API reference, executed notebook, sources.

Usage: docs_site.py [--only-pages]    writes build/site-pages, then has MkDocs build build/site

In the tree pages link to each other and to sources, as code hosts show them. Here each linked
source becomes a page of its own, the README the first page, and the notebook a page whose cells
were run just now. After the build every link of every page is followed.
"""

import argparse
import ast
import contextlib
import html.parser
import io
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
# What it is about, and the objects whose docstrings it shows.
API = {
    "replay": ("The replay buffer", ["ReplayBuffer", "Hindsight", "Dataset", "transforms"]),
    "store": (
        "Tables and stores",
        ["Store", "Table", "TableInfo", "TensorSpec", "BlockedReport", "selectors"],
    ),
    "limiters": (
        "Rate limiters and extensions",
        ["rate_limiters", "extensions", "load_plugin"],
    ),
    "checkpoints": ("Checkpoints", ["checkpointers"]),
    "client": (
        "Clients and batches",
        ["Client", "Batch", "ReplaySample", "SampleInfo", "External", "ExternalRows"],
    ),
    "writers": (
        "Writers",
        ["TrajectoryWriter", "TrajectoryColumn", "ColumnHistory", "Writer", "structured"],
    ),
    "datasets": ("Datasets of tables", ["TrajectoryDataset", "TimestepDataset", "PatternDataset"]),
    "server": ("Servers", ["Server", "ServerLimits", "ServerTls", "ClientTls", "PeerTls"]),
    "envs": (
        "Environments",
        ["envs.pool.EnvPool", "envs.vector_env.GymVectorEnv", "envs.adapters", "envs.agent_rows"],
    ),
    "native": ("Native and Atari environments", ["envs.native", "envs.atari"]),
    "batcher": ("Batchers", ["Batcher", "unbatch"]),
    "rpc": (
        "Calls between processes",
        ["Rpc", "Future", "create_uid", "register_dataclass", "set_log_level"],
    ),
    "groups": ("Groups and gradients", ["Broker", "Group", "Accumulator"]),
    "weights": ("Weights for actors", ["Weights"]),
    "train": ("Training", ["agents"]),
    "rl": ("Learning rules", ["rl"]),
    "nn": ("Networks", ["nn"]),
    "contrib": (
        "Other libraries",
        [
            "contrib.sb3",
            "contrib.cleanrl",
            "contrib.tianshou",
            "contrib.torchrl",
            "contrib.rllib",
            "contrib.flashbax",
            "gym",
            "moolib",
        ],
    ),
    "errors": ("Errors", ["errors"]),
}
_LINK = re.compile(r"(?P<head>!?\[[^\]]*\]\()(?P<target>[^)\s]+)\)")
# What the tests of the pages read behind a language.
_MARKS = re.compile(r"^```(?P<language>python|cpp) (no-run|declarations)[^\n`]*$", re.MULTILINE)
_BLOCK = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".cc": "cpp", ".h": "cpp", ".toml": "toml", ".md": "markdown"}


def pages() -> dict[Path, Path]:
    """Each page of the tree, and where it goes within the site."""
    made = {ROOT / "README.md": Path("index.md"), NOTEBOOK: Path("tutorial.md")}
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        made[ROOT / name] = Path(name.lower())
    docs = ROOT / "docs"
    made |= {page: page.relative_to(docs) for page in sorted(docs.rglob("*.md"))}
    return made


class Layout:
    """What is written, and the sources that pages link to."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.places = pages()
        self.sources: dict[Path, Path] = {}

    def rewritten(self, page: Path, text: str) -> str:
        """The text of ``page`` with links that lead within the site."""
        parts, end = [], 0
        for block in _BLOCK.finditer(text):  # code stays as it is
            parts += [self._links(page, text[end : block.start()])]
            parts += [_MARKS.sub(r"```\g<language>", block[0])]
            end = block.end()
        return "".join([*parts, self._links(page, text[end:])])

    def write(self, place: Path, text: str) -> None:
        """A page of the site."""
        path = self.out / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _links(self, page: Path, text: str) -> str:
        here = self.places[page].parent

        def moved(match: re.Match[str]) -> str:
            target, hash_mark, anchor = match["target"].partition("#")
            if "://" in target or target.startswith("mailto:") or not target:
                return match[0]
            place = self._place((page.parent / target).resolve())
            return f"{match['head']}{os.path.relpath(place, here)}{hash_mark}{anchor})"

        return _LINK.sub(moved, text)

    def _place(self, path: Path) -> Path:
        """Where a file of the tree is in the site."""
        if path in self.places:
            return self.places[path]
        if path.suffix in (".svg", ".png", ".gif"):
            place = path.relative_to(ROOT / "docs")
            (self.out / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.out / place)
            return place
        name = "source" / path.relative_to(ROOT)
        place = name.with_name(name.name + ".md")
        self.sources[path] = place
        return place


def lay_out(out: Path = PAGES) -> Layout:
    """Writes all pages; the notebook's cells are run."""
    shutil.rmtree(out, ignore_errors=True)
    layout = Layout(out)
    for page in layout.places:
        if page != NOTEBOOK:
            text = layout.rewritten(page, page.read_text(encoding="utf-8"))
            layout.write(layout.places[page], text)
    layout.write(layout.places[NOTEBOOK], layout.rewritten(NOTEBOOK, notebook_page(NOTEBOOK)))
    for path, place in layout.sources.items():
        layout.write(place, source_page(path))
    for name, (title, objects) in API.items():
        shown = "\n\n".join(f"::: reverie.{one}" for one in objects)
        layout.write(Path("api") / f"{name}.md", f"# {title}\n\n{shown}\n")
    shutil.copyfile(ROOT / "docs" / "site.css", out / "site.css")
    return layout


def source_page(path: Path) -> str:
    """A file of the tree as a page, or the names in a folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        names = "\n".join(f"- `{entry.name}`" for entry in sorted(path.iterdir()))
        return f"# {name}\n\n{names}\n"
    language = _LANGUAGES.get(path.suffix, "text")
    return f"# {name}\n\n````{language}\n{path.read_text(encoding='utf-8')}````\n"


def notebook_page(path: Path) -> str:
    """A notebook as a page, its cells run from top to bottom, what they print below each."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, object] = {"__name__": "__main__"}
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        said = run_cell(source, namespace)
        parts.append(f"```python\n{source}\n```")
        if said:
            parts.append(f'```text title="prints"\n{said.rstrip()}\n```')
    return "\n\n".join(parts) + "\n"


def run_cell(source: str, namespace: dict[str, object]) -> str:
    """Runs a cell; returns what it printed and, as a notebook has it, its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, "<cell>", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
            if value is not None:
                print(repr(value))
    return said.getvalue()


class _Links(html.parser.HTMLParser):
    """The links of a page, and the names that links to it may use."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects links and ids; the parser calls it."""
        for name, value in attrs:
            if name in ("href", "src") and value is not None and tag != "base":
                self.targets.append(value)
            if name == "id" and value is not None:
                self.names.add(value)


def broken_links(site: Path = SITE) -> Iterator[str]:
    """Links of the built pages that lead nowhere; those to other hosts are not followed."""
    parsed = {}
    for page in sorted(site.rglob("*.html")):
        links = _Links()
        links.feed(page.read_text(encoding="utf-8"))
        parsed[page] = links
    for page, links in parsed.items():
        for target in links.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            path = urllib.parse.unquote(parts.path)
            found = (page.parent / path).resolve() if path else page
            if found.is_dir():
                found = found / "index.html"
            where = f"{page.relative_to(site)} links to {target}"
            if not found.exists():
                yield where
            elif parts.fragment and found in parsed and found.suffix == ".html":
                name = urllib.parse.unquote(parts.fragment)
                if name not in parsed[found].names and name != "__codelineno":
                    yield where


def tidy_docstrings(site: Path = SITE) -> None:
    """Takes out what Sphinx would have read in docstrings, and MkDocs shows."""
    for page in sorted(site.glob("api/*.html")):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r":(meth|class|func|attr|mod):(?=<code>)", "", text)
        page.write_text(text.replace("::</p>", ":</p>"), encoding="utf-8")


def main() -> int:
    """Lays out, builds, follows the links."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only-pages", action="store_true", help="do not build")
    only_pages = parser.parse_args().only_pages
    sys.path.insert(0, str(ROOT / "python"))
    lay_out()
    if only_pages:
        return 0
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        return done.returncode
    tidy_docstrings()
    broken = list(broken_links())
    for line in broken:
        print(f"docs-site: {line}", file=sys.stderr)
    count = len(list(SITE.rglob("*.html")))
    print(f"{count} pages in {SITE.relative_to(ROOT)}, {len(broken)} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
