"""Each rule of tidy.py catches its fault on a small tree, and the real tree has none."""

from pathlib import Path

import pytest

import tidy

_TABLE = Path(__file__).resolve().parent / "rooms.toml"


def findings(root: Path, files: dict[str, str]) -> list[str]:
    """What tidy says about a tree of ``files`` under the real table."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(finding) for finding in tidy.check(root, tidy.Table(_TABLE))]


def header(*lines: str) -> str:
    """A header in order, with ``lines`` as its body."""
    return "\n".join(["// What it is.", "#pragma once", "", *lines, ""])


def test_the_repository_has_no_findings() -> None:
    root = _TABLE.parent.parent
    assert [str(finding) for finding in tidy.check(root, tidy.Table(_TABLE))] == []


def test_unused_library_allowances_of_rooms_are_found(tmp_path: Path) -> None:
    table = tidy.Table(_TABLE)
    assert tidy.unused_allowances(_TABLE.parent.parent, table) == []
    (tmp_path / "src/reverie/net").mkdir(parents=True)
    (tmp_path / "src/reverie/net/x.cc").write_text("#include <asio.hpp>\n")
    assert [str(finding) for finding in tidy.unused_allowances(tmp_path, table)] == [
        f"tools/rooms.toml:1: room 'net' may include {library}, which it does not; take it out"
        for library in ("openssl", "ucx")
    ]


def test_includes_of_lower_rooms_are_allowed(tmp_path: Path) -> None:
    files = {
        "src/reverie/base/status.h": header(),
        "src/reverie/tensor/shape.h": header('#include "reverie/base/status.h"'),
        "src/reverie/replay/table.cc": '#include "reverie/tensor/shape.h"\n#include <vector>\n',
        "src/reverie/replay/table_test.cc": (
            '#include "tests/conformance/x.h"\n#include <gtest/gtest.h>\n'
        ),
        "tests/conformance/x.h": header('#include "reverie/replay/table.h"'),
        "python/bindings/module.cc": "#include <nanobind/nanobind.h>\n",
    }
    assert findings(tmp_path, files) == []


@pytest.mark.parametrize(
    ("path", "include", "says"),
    [
        ("src/reverie/base/x.cc", '"reverie/tensor/shape.h"', "'base' may not include"),
        ("src/reverie/tensor/x.cc", '"reverie/rl/returns.h"', "'tensor' may not include"),
        ("src/reverie/client/x.cc", '"reverie/replay/table.h"', "'client' may not include"),
        ("src/reverie/replay/x.cc", '"reverie/client/writer.h"', "'replay' may not include"),
        ("src/reverie/client/x_test.cc", '"reverie/replay/table.h"', "'client' may not include"),
        ("src/reverie/adapters/http/x.cc", '"reverie/replay/t.h"', "'adapters/http' may not"),
        ("src/reverie/base/x.cc", '"reverie/cellar/x.h"', "lies in no room"),
        ("src/reverie/base/x.cc", '"status.h"', "with its full path"),
        ("src/reverie/base/x.cc", '"tests/conformance/x.h"', "lies above"),
        ("src/reverie/base/x_test.cc", '"python/bindings/convert.h"', "lies above"),
        ("src/reverie/replay/x.cc", "<asio.hpp>", "asio is not for room 'replay'"),
        ("src/reverie/replay/x.cc", "<fmt/core.h>", "fmt is not for room 'replay'"),
        ("src/reverie/replay/x.cc", "<nanobind/nanobind.h>", "nanobind is not for"),
        ("src/reverie/replay/x.cc", "<gtest/gtest.h>", "gtest is not for room 'replay'"),
        ("src/reverie/service/x.cc", "<google/protobuf/message.h>", "protobuf is not for"),
        ("src/reverie/service/x.cc", "<nghttp2/nghttp2.h>", "nghttp2 is not for"),
        ("src/reverie/service/x.cc", "<grpcpp/grpcpp.h>", "grpc is not for"),
        ("src/reverie/codec/x.cc", "<absl/strings/cord.h>", "belongs to no library"),
        ("tests/integration/x_test.cc", "<nanobind/nanobind.h>", "nanobind is not for tests"),
        ("examples/cc/x.cc", "<Python.h>", "python is not for examples"),
    ],
)
def test_an_include_that_the_table_does_not_allow_is_refused(
    tmp_path: Path, path: str, include: str, says: str
) -> None:
    (found,) = findings(tmp_path, {path: f"#include <vector>\n#include {include}\n"})
    assert found.startswith(f"{path}:2: ")
    assert says in found


def test_a_cycle_of_headers_is_refused(tmp_path: Path) -> None:
    files = {
        "src/reverie/base/a.h": header('#include "reverie/base/b.h"'),
        "src/reverie/base/b.h": header('#include "reverie/base/c.h"'),
        "src/reverie/base/c.h": header('#include "reverie/base/a.h"'),
    }
    (found,) = findings(tmp_path, files)
    assert "src/reverie/base/a.h -> src/reverie/base/b.h -> src/reverie/base/c.h" in found


@pytest.mark.parametrize(
    ("path", "code", "says"),
    [
        ("src/reverie/replay/x.cc", "auto t = std::chrono::steady_clock::now();", "Clock"),
        ("src/reverie/replay/x_test.cc", "auto t = time(nullptr);", "Clock"),
        ("src/reverie/replay/x.cc", "std::this_thread::sleep_for(d);", "nothing sleeps"),
        ("tests/integration/x_test.cc", "usleep(10);", "nothing sleeps"),
        ("tests/python/x_test.py", "time.sleep(1)", "nothing sleeps"),
        ("python/reverie/x_test.py", "sleep(0.1)", "nothing sleeps"),
        ("tests/python/x_test.py", "threading.Event().wait(0.01)", "eventually()"),
        ("tests/python/x_test.py", "while not done():\n    pause.wait(0.01)", "eventually()"),
        ("tests/attacks/x_test.py", "while not done():\n    pass", "eventually()"),
        ("tests/python/x_test.py", "while not loop.wait(0.001):\n    save()", "eventually()"),
        ("tests/python/x_test.py", "while few():\n    assert not loop.wait(1)", "eventually()"),
        ("src/reverie/base/x_test.cc", "while (!done) std::this_thread::yield();", "eventually()"),
        ("src/reverie/replay/x.cc", "std::random_device device;", "seedable Random"),
        ("src/reverie/replay/x.cc", "int i = rand();", "seedable Random"),
        ("python/reverie/store.py", "import pickle", "opt-in"),
        ("python/reverie/store.py", "from cloudpickle import loads", "opt-in"),
    ],
)
def test_a_banned_word_is_refused(tmp_path: Path, path: str, code: str, says: str) -> None:
    (found,) = findings(tmp_path, {path: f"\n{code}\n"})
    assert found.startswith(f"{path}:2: ")
    assert says in found


@pytest.mark.parametrize("pointer", ["const PyObject* const one", "PyObject const* one"])
def test_what_the_stable_abi_refuses_is_refused(tmp_path: Path, pointer: str) -> None:
    (found,) = findings(tmp_path, {"python/bindings/x.cc": f"{pointer} = leaf.ptr();\n"})
    assert "Python 3.12" in found


def test_a_short_wait_is_a_pause(tmp_path: Path) -> None:
    files = {"tests/python/x_test.py": "for name in names:\n    is_over.wait(0.05)\n"}
    (found,) = findings(tmp_path, files)
    assert "eventually()" in found


def test_banned_words_are_allowed_in_comments_and_strings(tmp_path: Path) -> None:
    files = {
        "src/reverie/replay/x.cc": (
            "// Never a random_device here.\n/* nor a\n steady_clock */\n"
            'const char* s = "usleep(1)";\n'
        ),
        "python/reverie/x.py": '"""Nothing here would import pickle."""\n',
    }
    assert findings(tmp_path, files) == []


def test_base_may_read_the_clock_and_the_random_device(tmp_path: Path) -> None:
    files = {
        "src/reverie/base/clock.cc": "auto t = std::chrono::steady_clock::now();\n",
        "src/reverie/base/random.cc": "std::random_device device;\n",
    }
    assert findings(tmp_path, files) == []


def test_a_header_needs_pragma_once_and_an_opening_comment(tmp_path: Path) -> None:
    found = findings(tmp_path, {"src/reverie/base/x.h": "int f();\n"})
    assert [text.split(": ")[1] for text in found] == [
        "has no #pragma once",
        "does not open with a comment that says what it is",
    ]


def test_a_folder_that_is_not_a_room_is_refused(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, {"src/reverie/cellar/x.h": header()})
    assert "lies in no room" in found


def test_a_private_path_is_refused_in_any_text(tmp_path: Path) -> None:
    private = "/wo" + "rk/"  # in two halves, since this file is held to the rule too
    found = findings(tmp_path, {"docs/page.md": f"one\nsee {private}notes\n"})
    assert found == [f"docs/page.md:2: '{private}' means nothing to a reader"]


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        (
            "src/reverie/base/x.h",
            header("// Of the first address.", "int port();"),
            "has a subject",
        ),
        ("src/reverie/base/x.h", header("int port();  // that somebody has"), "'somebody'"),
        ("tests/x.cc", "// each item that is none's\n", "belongs to no x"),
        ("python/reverie/x.py", '"""Of the last batch."""\n', "has a subject"),
        ("python/reverie/x.py", "x = 1  # one a shard\n", "one per x"),
        ("docs/x.md", "Loop thread, but for the facts.\n", "say 'except'"),
        ("docs/x.md", "A field that is passed over.\n", "'passed over'"),
        ("python/reverie/x.py", "x = 1  # for Reverb's sake\n", "for compatibility"),
        ("python/reverie/x.pyi", '"""Made anew."""\n', "say 'again'"),
        ("python/reverie/x.py", "error = f'{x} lies in {y}'\n", "say 'is in'"),
        ("src/reverie/base/x.h", header('auto text = "for nobody";'), "'nobody'"),
        ("cmake/x.cmake", "# Nobody waits for it.\n", "'Nobody'"),
        ("Makefile", "docs: ## Draw the pictures anew\n", "say 'again'"),
        ("x.toml", "# Whoever serves a call.\n", "'Whoever'"),
    ],
)
def test_phrases_listed_as_dialect_are_refused(
    tmp_path: Path, path: str, text: str, says: str
) -> None:
    (said,) = findings(tmp_path, {path: text})
    assert says in said


def test_code_may_use_any_word(tmp_path: Path) -> None:
    files = {
        "src/reverie/base/x.h": header("constexpr auto nobody = 1;  // unset"),
        "python/reverie/x.py": "nobody = 1\n",
        "x.toml": 'nobody = "somebody"\n',
    }
    assert findings(tmp_path, files) == []


def test_a_source_without_a_test_must_say_where_it_is_tested(tmp_path: Path) -> None:
    assert tidy.untested_sources(_TABLE.parent.parent) == []
    files = {
        "src/reverie/base/x.cc": "int x;\n",
        "src/reverie/base/x_test.cc": "",
        "src/reverie/base/y.cc": "// What.\n//\n// Tested in x_test.cc and tests/z_test.py.\n",
        "tests/z_test.py": "",
        "examples/cc/x.cc": "",
    }
    findings(tmp_path, files)
    assert tidy.untested_sources(tmp_path) == []
    findings(tmp_path, {"src/reverie/base/z.cc": "int z;\n"})
    (said,) = tidy.untested_sources(tmp_path)
    assert "z.cc:1: has no test beside it" in str(said)
    findings(tmp_path, {"src/reverie/base/z.cc": "// Tested in gone_test.cc.\n"})
    (said,) = tidy.untested_sources(tmp_path)
    assert "'gone_test.cc', which is missing" in str(said)


def test_a_source_or_room_that_is_too_large_is_refused(tmp_path: Path) -> None:
    table = tidy.Table(_TABLE)
    assert [str(finding) for finding in tidy.large_sources(_TABLE.parent.parent, table)] == []
    long = "int x;\n" * 600
    files = {
        "src/reverie/base/long.cc": long,
        "src/reverie/base/why.cc": f"// What.\n//\n// One file, since it is one.\n{long}",
        "src/reverie/base/late.cc": f"int y;\n// One file, said too late.\n{long}",
        "src/reverie/base/long_test.cc": long * 10,
        "python/reverie/long.py": f'"""What."""\n{long}',
        "python/reverie/why.py": f'"""What.\n\nOne file, since it is one.\n"""\n{long}',
    }
    findings(tmp_path, files)
    said = [str(finding) for finding in tidy.large_sources(tmp_path, table)]
    assert [line.split(":")[0] for line in said] == [
        "python/reverie/long.py",
        "src/reverie/base/late.cc",
        "src/reverie/base/long.cc",
    ]
    assert "has 600 lines" in said[2]
    findings(tmp_path, {f"src/reverie/base/{i}.h": "// x\n" * 400 for i in range(10)})
    said = [str(finding) for finding in tidy.large_sources(tmp_path, table)]
    assert "room 'base' has 5805 lines without its tests, 5000 at most" in said[-1]


def test_build_outputs_are_not_checked(tmp_path: Path) -> None:
    files = {"build/x.h": "", ".venv/x.h": "", "reverie.egg-info/x.h": "", ".git/x.h": ""}
    assert findings(tmp_path, files) == []


def table(tmp_path: Path, rooms: str, pairs: str = "[]") -> tidy.Table:
    """A table of ``rooms`` alone."""
    path = tmp_path / "rooms.toml"
    path.write_text(
        f"{rooms}\n[walls]\npairs = {pairs}\n[roof]\n[libraries]\n[bans]\n"
        '[system]\nheaders = []\n[words]\nprivate = ["x"]\nexcept = []\n'
    )
    return tidy.Table(path)


def test_a_table_whose_steps_do_not_lead_down_is_refused(tmp_path: Path) -> None:
    rooms = (
        "[rooms.base]\nlevel = 0\n"
        '[rooms.a]\nlevel = 1\nsteps = ["b"]\n[rooms.b]\nlevel = 1\nsteps = ["a"]\n'
    )
    faults = list(table(tmp_path, rooms).faults())
    assert len(faults) == 2
    assert "steps lead down" in faults[0]


def test_a_table_with_a_path_through_a_wall_is_refused(tmp_path: Path) -> None:
    rooms = (
        "[rooms.base]\nlevel = 0\n[rooms.a]\nlevel = 1\n"
        '[rooms.b]\nlevel = 2\nsteps = ["a"]\n[rooms.c]\nlevel = 3\nsteps = ["b"]\n'
    )
    assert list(table(tmp_path, rooms, '[["a", "c"]]').faults()) == [
        "'c' can reach 'a'; a wall stands between them"
    ]


def test_a_table_that_names_an_unknown_room_or_library_is_refused(tmp_path: Path) -> None:
    rooms = (
        '[rooms.base]\nlevel = 0\n[rooms.a]\nlevel = 1\nsteps = ["attic"]\nlibraries = ["boost"]\n'
    )
    assert list(table(tmp_path, rooms).faults()) == [
        "room 'a' steps to 'attic', which is not a room",
        "room 'a' names the library 'boost', which has no pattern",
    ]
