"""Definitions that travel by value, and what a program has registered with cloudpickle itself."""

import importlib.util
import sys

import pytest

from reverie import trusted

cloudpickle = pytest.importorskip("cloudpickle")

PLUGIN = """
def number():
    return 7

class Nested:
    def __init__(self, meanwhile):
        self.meanwhile = meanwhile

    def __reduce__(self):
        self.meanwhile()
        return number, ()
"""


@pytest.fixture
def plugin(tmp_path):
    """A module that another interpreter could not import."""
    file = tmp_path / "of_a_plugin.py"
    file.write_text(PLUGIN)
    spec = importlib.util.spec_from_file_location("of_a_plugin", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["of_a_plugin"] = module
    spec.loader.exec_module(module)
    before = cloudpickle.list_registry_pickle_by_value()
    yield module
    sys.modules.pop("of_a_plugin", None)
    if "of_a_plugin" in cloudpickle.list_registry_pickle_by_value() - before:
        cloudpickle.unregister_pickle_by_value(module)


def loaded_elsewhere(data):
    """What the data is where the module is missing."""
    del sys.modules["of_a_plugin"]
    return trusted.loads(data)


def test_a_module_is_registered_for_the_call_only(plugin):
    before = cloudpickle.list_registry_pickle_by_value()
    data = trusted.dumps_code(plugin.number, "env")
    assert cloudpickle.list_registry_pickle_by_value() == before
    assert loaded_elsewhere(data)() == 7


def test_a_module_that_the_program_has_registered_stays_so(plugin):
    cloudpickle.register_pickle_by_value(plugin)
    for _ in range(2):
        data = trusted.dumps_code(plugin.number, "env")
        assert "of_a_plugin" in cloudpickle.list_registry_pickle_by_value()
    assert loaded_elsewhere(data)() == 7


def test_a_call_during_another_one_leaves_its_registration(plugin):
    before = cloudpickle.list_registry_pickle_by_value()
    value = plugin.Nested(lambda: trusted.dumps_code(plugin.number, "env"))
    data = trusted.dumps_code(value, "env")
    assert cloudpickle.list_registry_pickle_by_value() == before
    assert loaded_elsewhere(data) == 7


def test_a_module_that_is_unregistered_during_a_call_stays_so(plugin):
    value = plugin.Nested(lambda: cloudpickle.unregister_pickle_by_value(plugin))
    trusted.dumps_code(value, "env")
    assert "of_a_plugin" not in cloudpickle.list_registry_pickle_by_value()
