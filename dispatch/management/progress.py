"""How far a long act is: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

WIDTH = 30


class Screen(Protocol):
    def isatty(self) -> bool: ...
    def write(self, text: str, /) -> object: ...
    def flush(self) -> None: ...


class Progress:
    """Call it with (done, total). The bar is wiped when the act is over, whatever way."""

    def __init__(self, screen: Screen, title: str) -> None:
        self._screen = screen if screen.isatty() else None
        self._title = title

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._say("\r\x1b[K")

    def __call__(self, done: int, total: int) -> None:
        full = WIDTH * done // total if total else WIDTH
        self._say(f"\r\x1b[K{self._title} [{'#' * full}{'.' * (WIDTH - full)}] {done:,} of {total:,}")

    def _say(self, text: str) -> None:
        if self._screen is not None:
            self._screen.write(text)
            self._screen.flush()
