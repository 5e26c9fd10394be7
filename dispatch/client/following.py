"""A job's stream of server-sent events, followed over cuts: a program as in `programs`, and the parser it feeds."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field

from dispatch.client.errors import BadAnswer, ConnectionLost
from dispatch.client.programs import Failure, Lost, Patience, Pause, Reply, Tries, judge
from dispatch.client.shapes import TERMINAL, StreamEvent

SILENT_S = 45.0  # the server says something every 15 s
RECONNECT_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Open:
    """Ask: open the stream of the job after this event."""

    job_id: str
    after: int


class Next:
    """Ask: the next bytes of what is open."""


class Opened:
    """Told: the stream is open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tell:
    """Ask: hand this event to whoever follows."""

    event: StreamEvent


Step = Open | Next | Pause | Tell
Told = Opened | Reply | Lost | bytes | None  # None: nothing to tell; after Next: the server ended the stream


@dataclass(kw_only=True)
class Parser:
    """Bytes in, (id, event, data) out. The server sends one `data` line for each event."""

    _rest: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)

    def feed(self, piece: bytes) -> list[tuple[int, str, str]]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found = []
        for line in lines:
            name, _, value = line.rstrip(b"\r").decode().partition(":")
            if line.strip():
                self._fields[name] = value.removeprefix(" ")  # a comment is kept under no name, and not looked at
                continue
            fields, self._fields = self._fields, {}
            if "data" in fields:
                number = fields.get("id", "")
                found.append((int(number) if number.isdigit() else 0, fields.get("event", ""), fields["data"]))
        return found


def follow(job_id: str, after: int, patience: Patience) -> Generator[Step, Told, None]:
    """Tell every event after `after` once, over ends and cuts of the stream, until the job has ended."""
    tries = Tries(patience=patience)
    status: str | None = None
    while True:
        told = yield Open(job_id=job_id, after=after)
        if isinstance(told, Reply | Lost):
            refused = judge(told, repeatable=True, answers=frozenset())
            assert isinstance(refused, Failure)
            yield tries.again(refused.error) if refused.may_repeat else refused.give_up()
            continue
        parser, cut = Parser(), None
        while True:
            piece = yield Next()
            if not isinstance(piece, bytes):
                cut = piece
                break
            tries.reset()
            for number, kind, text in parser.feed(piece):
                event = _event(number, kind, text)
                after = max(after, number)
                if kind == "status":
                    if event.data["status"] == status:
                        continue  # each stream begins by telling it
                    status = event.data["status"]
                yield Tell(event=event)
                if status in TERMINAL:
                    return
        yield tries.again(ConnectionLost(cut.why)) if isinstance(cut, Lost) else Pause(seconds=RECONNECT_S)


def _event(number: int, kind: str, text: str) -> StreamEvent:
    try:
        return StreamEvent(id=number, event=kind, data=json.loads(text))
    except ValueError:
        raise BadAnswer("an event of the stream is not JSON") from None
