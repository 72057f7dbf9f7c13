"""Methods that are called at each step, without a line of Python in between."""

from __future__ import annotations

from collections.abc import Iterable


def take_methods(face: object, of: type, source: object, names: Iterable[str]) -> None:
    """Makes methods of ``source`` those of ``face``, an object of ``of`` or of a subclass.

    A call of ``face.step`` is then a call of ``source.step``. What a subclass overrides stays its
    own: there ``super().step`` reaches ``of.step``, which calls the source.
    """
    for name in names:
        if getattr(type(face), name) is getattr(of, name):
            setattr(face, name, getattr(source, name))
