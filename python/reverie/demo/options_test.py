"""What the demonstration refuses before it begins."""

import sys

import pytest

from reverie.demo.options import Options, missing_extras


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"seeds": 0}, r"--seeds is 0; it must be at least 1 and at most 1000"),
        ({"seeds": 1001}, r"--seeds is 1001; .* at most 1000"),
        ({"steps": 1999}, r"--steps is 1999; it must be at least 2000"),
        ({"served_seeds": -1}, r"--served is -1; it must be at least 0"),
        ({"actors": 0}, r"--actors is 0; it must be at least 1 and at most 64"),
        ({"first_seed": -1}, r"--seed is -1; it must be at least 0"),
    ],
)
def test_a_number_out_of_range_is_refused_with_its_bounds(arguments, says):
    with pytest.raises(ValueError, match=says):
        Options(**arguments)


def test_an_output_path_that_cannot_be_a_folder_is_refused(tmp_path):
    file = tmp_path / "taken"
    file.touch()
    for out in (file, file / "below"):
        with pytest.raises(NotADirectoryError, match=r"taken is not a folder"):
            Options(out=out)
    assert Options(out=tmp_path / "new" / "below").out == tmp_path / "new" / "below"


def test_a_missing_package_is_named(monkeypatch):
    assert missing_extras() == []
    monkeypatch.setitem(sys.modules, "rich", None)
    assert missing_extras() == ["rich"]
