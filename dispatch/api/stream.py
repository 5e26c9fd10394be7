"""A job's output, progress and status as server-sent events."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import Error as DatabaseFailure
from django.http import StreamingHttpResponse

from dispatch.connections import release_connections
from dispatch.errors import DispatchError
from dispatch.inputs import refusal
from dispatch.states import TERMINAL

MAX_STREAM_S = 55.0  # then the client comes back with Last-Event-ID, and the thread has served others meanwhile
KEEP_ALIVE_S = 15.0
FIRST_POLL_S = 0.25
LAST_POLL_S = 1.0
RECONNECT_MS = 1000

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class JobStream:
    """Chunks after the id `after`, oldest first, and the status at each change, until the job ends or the time is over.

    `read_status` is called before `read_chunks`, so the chunks of a job seen as ended are all there. No database
    connection is held between two looks.
    """

    job_id: str
    read_status: Callable[[], str]
    read_chunks: Callable[[int], Sequence[Mapping[str, Any]]]  # those with a greater id: id, kind, data
    after: int = 0
    max_s: float = MAX_STREAM_S
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _ready: list[str] = field(default_factory=list)
    _status: str | None = None
    _more: bool = False
    _ended: bool = False

    def look(self) -> None:
        """Read the store once and keep what is new; raise what the reads raise."""
        status = self.read_status()
        chunks = self.read_chunks(self.after)
        for chunk in chunks:
            self.after = chunk["id"]
            self._ready.append(event(self.after, chunk["kind"], chunk["data"]))
        # A read of chunks is bounded: those of an ended job are all told when a read brings no more.
        self._more = bool(chunks)
        self._ended = status in TERMINAL and not self._more
        if status != self._status and (self._ended or status not in TERMINAL):
            self._status = status
            self._ready.append(event(self.after, "status", {"job_id": self.job_id, "status": status}))

    def events(self) -> Iterator[str]:
        yield f"retry: {RECONNECT_MS}\n\n"
        began = said = self.clock()
        pause = FIRST_POLL_S
        while True:
            if self._ready:
                said, pause = self.clock(), FIRST_POLL_S
                yield "".join(self._ready)
                self._ready.clear()
            if self._ended or self.clock() - began >= self.max_s:
                return
            if self.clock() - said >= KEEP_ALIVE_S:
                said = self.clock()
                yield ": keep-alive\n\n"
            if not self._more:
                release_connections()
                self.sleep(pause)
                pause = min(pause * 1.5, LAST_POLL_S)
            try:
                self.look()
            except (DispatchError, DatabaseFailure) as error:
                # Headers are sent: the only honest answer left is to end; the client comes back and gets the code.
                logger.warning(
                    "a job's stream ended early", extra={"job_id": self.job_id, "error": type(error).__name__}
                )
                return


def event(number: int, kind: str, data: Any) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def read_last_event_id(header: str | None) -> int:
    """The id to go on after; 0 without the header. Raise Invalid for what no stream has sent."""
    if not header:
        return 0
    if not (header.isascii() and header.isdigit() and len(header) <= 18):
        raise refusal({"Last-Event-ID": "must be the id of an event of this stream"})
    return int(header)


def event_response(events: Iterator[str]) -> StreamingHttpResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # a proxy that buffers would hold events back
    return StreamingHttpResponse(events, content_type="text/event-stream; charset=utf-8", headers=headers)
