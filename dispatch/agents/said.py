"""What a Python agent says between two writes: text in order, its newest progress, up to a limit for each run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from dispatch.agents.clean import clean_json, clean_text

BATCH_S = 0.25
CHUNK_CHARS = 16 * 1024
MAX_PROGRESS_MESSAGE_BYTES = 1024
OUTPUT_LIMIT_BYTES = 1024 * 1024
MOST_PROGRESS = 1000  # of a run, each time that it gets e times as old: the longer it runs, the more seldom


def progress_data(done: float, total: float | None, message: str) -> dict[str, Any]:
    numbers: dict[str, Any] = clean_json({"done": done, "total": total})[0]
    return {**numbers, "message": clean_text(message, MAX_PROGRESS_MESSAGE_BYTES)}


class OutputLimit:
    """How much of a run's text is kept. Beyond it text is dropped, and that is said once, in the text."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = self._left = limit_bytes

    def keep(self, text: str) -> str:
        """What of the text is kept, with the remark where it is cut."""
        if self._left <= 0:
            return ""
        raw, left = text.encode("utf-8", "replace"), self._left
        self._left -= len(raw)
        if self._left >= 0:
            return text
        return raw[:left].decode("utf-8", "ignore") + f"\n[output beyond {self._limit} bytes is not kept]\n"


class Said:
    """Filled by the agent, emptied by whoever writes it; both from any thread.

    The first thing that is said after a pause is due at once; what follows within BATCH_S waits for the rest of it,
    unless it fills a chunk. Should the agent then be silent, `write_soon` is called: it must not block.
    """

    def __init__(
        self,
        write_soon: Callable[[], object],
        *,
        limit_bytes: int = OUTPUT_LIMIT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write_soon = write_soon
        self._limit = OutputLimit(limit_bytes)
        self._clock = clock
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._texts: list[str] = []  # all but the last are full chunks
        self._progress: dict[str, Any] | None = None
        self._began = clock()
        self._wrote = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._texts or self._progress)

    def text(self, text: str) -> None:
        cleaned = clean_text(text)
        with self._lock:
            whole = (self._texts.pop() if self._texts else "") + self._limit.keep(cleaned)
            self._texts += [whole[at : at + CHUNK_CHARS] for at in range(0, len(whole), CHUNK_CHARS)]

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Only the newest is worth writing."""
        self._progress = progress_data(done, total, message)

    def is_due(self) -> bool:
        """Whether to write now. If not, it will be."""
        due = self._is_due()
        if not due:
            SOON.call(id(self), self._look_again)
        return due

    def _is_due(self) -> bool:
        with self._lock:
            gap = self._clock() - self._wrote
            if self._texts:
                return len(self._texts) > 1 or gap >= BATCH_S
            return self._progress is not None and gap >= max(BATCH_S, (self._clock() - self._began) / MOST_PROGRESS)

    def _look_again(self) -> None:
        if self and self.is_due():
            self._write_soon()

    def write(self, emit: Callable[[str, dict[str, Any]], None]) -> None:
        """Hand over all text, then the progress, while nobody else does. Raise what `emit` raises; that piece stays."""
        with self._writing:
            while (text := self._take()) is not None:
                try:
                    emit("text", {"text": text})
                except BaseException:
                    with self._lock:
                        self._texts.insert(0, text)
                    raise
                self._wrote = self._clock()
            if (data := self._progress) is not None:
                emit("progress", data)
                self._wrote = self._clock()
                with self._lock:
                    if self._progress is data:
                        self._progress = None

    def _take(self) -> str | None:
        with self._lock:
            return self._texts.pop(0) if self._texts else None


class _Soon:
    """One thread for all runs of the process: what was said is written soon, though its agent says nothing more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._come = threading.Event()
        self._waiting: dict[int, Callable[[], object]] = {}
        self._thread: threading.Thread | None = None

    def call(self, key: int, write: Callable[[], object]) -> None:
        """Call `write` within a moment, once for a key; it must not block."""
        with self._lock:
            self._waiting[key] = write
            if self._thread is None or not self._thread.is_alive():  # the first one, or after a fork
                self._thread = threading.Thread(target=self._serve, name="turn-output", daemon=True)
                self._thread.start()
        self._come.set()

    def _serve(self) -> None:
        while self._come.wait():
            time.sleep(BATCH_S)
            self._come.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            for write in waiting.values():
                write()


SOON = _Soon()
