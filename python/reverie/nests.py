"""Types of nests, for editors and type checkers. When a program runs they are ``Any``.

What a nest holds is known to the program that wrote it alone: a single array, or a dict, tuple or
class of more. These types have what an array has and what a dict has, so that
``batch.data["obs"].shape`` and ``batch.data["obs"]["position"]`` are both known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["ArrayNest", "HistoryNest", "TensorNest"]

if TYPE_CHECKING:
    from collections.abc import ItemsView, KeysView, Sequence, ValuesView
    from typing import overload

    import numpy as np
    import torch

    from reverie._reverie import ColumnHistory, TrajectoryColumn

    class ArrayNest(np.ndarray[Any, np.dtype[Any]]):
        """A NumPy array, or a dict, tuple or class of such nests."""

        @overload  # type: ignore[override]
        def __getitem__(self, key: str, /) -> ArrayNest: ...
        @overload
        def __getitem__(self, key: Any, /) -> Any: ...  # noqa: ANN401
        def __getitem__(self, key: Any, /) -> Any: ...
        def __getattr__(self, name: str, /) -> Any: ...  # noqa: ANN401
        def keys(self) -> KeysView[str]: ...  # noqa: D102
        def values(self) -> ValuesView[ArrayNest]: ...  # noqa: D102
        def items(self) -> ItemsView[str, ArrayNest]: ...  # noqa: D102

    class TensorNest(torch.Tensor):  # type: ignore[misc]
        """A tensor of PyTorch, or a dict, tuple or class of such nests."""

        @overload
        def __getitem__(self, key: str, /) -> TensorNest: ...
        @overload
        def __getitem__(self, key: Any, /) -> Any: ...  # noqa: ANN401
        def __getitem__(self, key: Any, /) -> Any: ...
        def __getattr__(self, name: str, /) -> Any: ...  # noqa: ANN401
        def keys(self) -> KeysView[str]: ...  # noqa: D102
        def values(self) -> ValuesView[TensorNest]: ...  # noqa: D102
        def items(self) -> ItemsView[str, TensorNest]: ...  # noqa: D102

    class HistoryNest(ColumnHistory):
        """The history of a column, or a dict, tuple or class of such nests."""

        @overload
        def __getitem__(self, key: str, /) -> HistoryNest: ...
        @overload
        def __getitem__(self, key: int | slice | Sequence[int], /) -> TrajectoryColumn: ...
        def __getitem__(self, key: Any, /) -> Any: ...
        def __getattr__(self, name: str, /) -> Any: ...  # noqa: ANN401
        def keys(self) -> KeysView[str]: ...  # noqa: D102
        def values(self) -> ValuesView[HistoryNest]: ...  # noqa: D102
        def items(self) -> ItemsView[str, HistoryNest]: ...  # noqa: D102

else:
    ArrayNest = HistoryNest = TensorNest = Any
