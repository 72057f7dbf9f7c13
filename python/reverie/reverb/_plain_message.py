"""What Reverb's programs read of a message, for those who have no protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reverie.reverb._messages import import_protobuf


class PlainMessage:
    """Fields that were set, and defaults for those that were not, with protobuf's questions.

    Args:
        defaults: the defaults of all fields, by name.
        fields: those that are set.
        oneof: the name of the choice that some fields are members of.
        members: those fields.
    """

    def __init__(
        self,
        defaults: Mapping[str, Any],
        fields: Mapping[str, Any],
        oneof: str = "",
        members: tuple[str, ...] = (),
    ) -> None:
        self._defaults = defaults
        self._fields = dict(fields)
        self._oneof = oneof
        self._members = members

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if not name.startswith("_"):
            if name in self._fields:
                return self._fields[name]
            if name in self._defaults:
                return self._defaults[name]
        raise AttributeError(f"the message has no field {name}")

    def HasField(self, name: str) -> bool:  # noqa: N802 (protobuf's name)
        """Whether the field is set."""
        if name not in self._defaults:
            raise ValueError(f"the message has no field {name}")
        return name in self._fields

    def WhichOneof(self, name: str) -> str | None:  # noqa: N802 (protobuf's name)
        """The member of a choice that is set."""
        if name != self._oneof:
            raise ValueError(f"the message has no choice {name}")
        return next((member for member in self._members if member in self._fields), None)

    def SerializeToString(self) -> bytes:  # noqa: N802 (protobuf's name)
        """Needs protobuf.

        Raises:
            MissingPackageError: protobuf is not installed.
        """
        import_protobuf("message")
        raise NotImplementedError("this message was made before protobuf could be imported")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlainMessage):
            return NotImplemented
        return self._fields == other._fields

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lines = []
        for name, value in self._fields.items():
            if isinstance(value, PlainMessage):
                inner = "".join(f"  {line}\n" for line in repr(value).splitlines())
                lines.append(f"{name} {{\n{inner}}}\n")
            elif value:
                lines.append(f"{name}: {str(value).lower()}\n")
        return "".join(lines)
