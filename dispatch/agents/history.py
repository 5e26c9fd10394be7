"""The earlier turns of a session, as a turn sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload


class History(Sequence[dict[str, Any]]):
    """Earlier turns of the session that succeeded, oldest first; read once, when first looked at."""

    def __init__(self, load: Callable[[], list[dict[str, Any]]]) -> None:
        self._load = load
        self._turns: list[dict[str, Any]] | None = None

    def _loaded(self) -> list[dict[str, Any]]:
        if self._turns is None:
            self._turns = self._load()
        return self._turns

    def __len__(self) -> int:
        return len(self._loaded())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._loaded())

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._loaded()[index]
