"""What a turn says while it runs, piece after piece: the page shows the end of it and asks for what came since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dispatch import states
from dispatch.models import OutputChunk, WorkItem
from fleet.console.roles import READ_CONTENT, Staff

PIECES = 200  # of one answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """Text after a piece. `last`: the number to ask on from; `more`: there is more already."""

    text: str
    last: int
    more: bool
    note: str


def output_after(item: WorkItem, staff: Staff, after: int) -> Output:
    """The pieces after that number, in order."""
    rows = OutputChunk.objects.filter(work_item=item)
    if not staff.may_read_content:
        return _hidden(item, rows.filter(pk__gt=after)[: PIECES + 1].count())
    pieces = list(rows.filter(pk__gte=after).order_by("pk")[: PIECES + 2])
    epoch = pieces.pop(0).epoch if pieces and pieces[0].pk == after else None
    return _output(item, pieces[:PIECES], epoch=epoch, last=after, more=len(pieces) > PIECES)


def output_end(item: WorkItem, staff: Staff) -> Output:
    """The newest pieces, for a page that opens."""
    rows = OutputChunk.objects.filter(work_item=item).order_by("-pk")
    if not staff.may_read_content:
        return _hidden(item, rows.order_by()[: PIECES + 1].count())
    newest = list(rows[: PIECES + 1])
    shown = newest[:PIECES][::-1]
    found = _output(item, shown, epoch=shown[0].epoch if shown else None, last=0, more=False)
    if len(newest) <= PIECES:
        return found
    return Output(text=f"[earlier output left out]\n{found.text}", last=found.last, more=False, note=found.note)


def _output(item: WorkItem, pieces: list[OutputChunk], *, epoch: int | None, last: int, more: bool) -> Output:
    return Output(
        text="".join(_texts(pieces, epoch)), last=pieces[-1].pk if pieces else last, more=more, note=_note(item)
    )


def _texts(pieces: Iterable[OutputChunk], epoch: int | None) -> Iterable[str]:
    """Text as it was written; progress, and a run that begins anew after another, on lines of their own."""
    at_line_start = True
    for piece in pieces:
        own = []
        if epoch is not None and piece.epoch != epoch:
            own.append(f"[a new run, epoch {piece.epoch}]\n")
        epoch = piece.epoch
        text = str(piece.data.get("text", ""))
        if piece.kind == "progress":
            own, text = [*own, _progress(piece.data)], ""
        if own and not at_line_start:
            yield "\n"
        yield from own
        yield text
        at_line_start = text.endswith("\n") if text else bool(own) or at_line_start


def _progress(data: dict[str, Any]) -> str:
    done, total, message = data.get("done"), data.get("total"), data.get("message")
    share = f"{done} of {total}" if total is not None else str(done)
    return f"[{share}: {message}]\n" if message else f"[{share}]\n"


def _hidden(item: WorkItem, count: int) -> Output:
    if not count:
        return Output(text="", last=0, more=False, note=_note(item))
    many = f"more than {PIECES}" if count > PIECES else str(count)
    return Output(text="", last=0, more=False, note=f"hidden: {many} pieces, needs {READ_CONTENT}")


def _note(item: WorkItem) -> str:
    return "it has ended" if item.status in states.TERMINAL else f"{item.status}, followed while this page is open"
