"""A pytest plugin: ``import reverb``, and importing any of its modules, gives ours."""

import importlib
import importlib.abc
import importlib.machinery
import sys


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):  # noqa: ARG002
        is_reverb = name == "reverb" or name.startswith("reverb.")
        return importlib.machinery.ModuleSpec(name, self) if is_reverb else None

    def create_module(self, spec):
        return importlib.import_module(f"reverie.{spec.name}")

    def exec_module(self, module):
        """The module was already run by its import."""


sys.meta_path.insert(0, Alias())
