"""Notebooks open in Jupyter, run from top to bottom, and carry no outputs."""

import json
import re
from pathlib import Path

import nbformat
import pytest

_FOLDER = Path(__file__).resolve().parents[2] / "examples"
_NOTEBOOKS = sorted(_FOLDER.glob("*.ipynb"))


@pytest.fixture(params=_NOTEBOOKS, ids=lambda path: path.name)
def path(request):
    return request.param


def test_there_is_a_notebook():
    assert _NOTEBOOKS


def test_the_notebook_is_valid(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.language == "python"


def test_the_notebook_has_no_outputs(path):
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_the_cells_of_the_notebook_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    checks = 0
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type == "code":
            exec(compile(cell.source, f"{path.name}, cell {number}", "exec"), namespace)
            checks += cell.source.count("assert ")
    assert checks >= 5


def test_the_links_of_the_notebook_have_targets(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([^)#]+)", cell.source):
                assert (path.parent / target).exists(), target
