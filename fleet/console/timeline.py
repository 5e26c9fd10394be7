"""The turns of a session as a timeline: how long each waited and ran, with what people did in between."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.safestring import SafeString

from dispatch import states
from dispatch.models import Outcome, WorkItem
from fleet.console.base import moment
from fleet.console.content import MAX_TEXT, text_for
from fleet.console.labels import Label, duration, label
from fleet.console.roles import Staff
from sessions_app.models import AuditEntry, Session, Turn

TURNS = 50
ACTS = 20
CODE = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnLine:
    """One turn. `waited_share` and `ran_share` are percent of the longest turn shown."""

    at: datetime
    pk: int
    job_id: str
    number: int | None
    place: int
    agent_name: str
    label: Label
    began: str  # how long it waited, in words
    waited: str
    ran: str
    waited_share: float
    ran_share: float
    when: SafeString | str
    task: str
    cut: bool
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ActLine:
    """What somebody did to the session."""

    at: datetime
    when: SafeString | str
    words: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Turns and acts by time. `earlier` is the place before which more are kept, None when none are."""

    lines: list[TurnLine | ActLine]
    turns: int
    earlier: int | None
    is_newest: bool


def session_timeline(session: Session, staff: Staff, *, before: str = "") -> Timeline:
    """The 50 turns before a place, or the newest 50, oldest first, and the acts of their time."""
    place = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None
    items = WorkItem.objects.filter(session=session)
    if place is not None:
        items = items.filter(session_seq__lt=place)
    kept = list(
        items.order_by("-session_seq").only(
            "job_id", "session_seq", "agent_name", "status", "attempt", "epoch", "task", "run_at",
            "started_at", "finished_at", "created_at",
        )[: TURNS + 1]
    )  # fmt: skip
    shown = kept[:TURNS][::-1]
    turns: list[TurnLine | ActLine] = [*_turn_lines(shown, staff)]
    acts = _acts(session, since=shown[0].created_at if shown and len(kept) > TURNS else None)
    lines = turns if place is not None else sorted([*turns, *acts], key=lambda line: line.at)
    return Timeline(
        lines=lines,
        turns=len(shown),
        earlier=shown[0].session_seq if len(kept) > TURNS else None,
        is_newest=place is None,
    )


def _turn_lines(items: list[WorkItem], staff: Staff) -> list[TurnLine]:
    keys = [item.pk for item in items]
    numbers = dict(
        Turn.objects.filter(work_item_id__in=keys).order_by("epoch").values_list("work_item_id", "turn_number")
    )
    errors = _errors(items, staff)
    spans = {item.pk: _spans(item, timezone.now()) for item in items}
    longest = max((wait + run for wait, run in spans.values()), default=0.0) or 1.0
    return [
        _turn_line(item, staff, numbers.get(item.pk), errors.get(item.pk, ""), spans[item.pk], longest)
        for item in items
    ]


def _spans(item: WorkItem, now: datetime) -> tuple[float, float]:
    """Seconds until its last run began, and of that run, up to now where it still goes on. Suspended, it runs not."""
    ready = max(item.created_at, item.run_at) if item.run_at else item.created_at
    begun = item.started_at or item.finished_at or now
    waited = max(0.0, (begun - ready).total_seconds())
    runs = item.started_at is not None and item.status != states.SUSPENDED
    return waited, max(0.0, ((item.finished_at or now) - begun).total_seconds()) if runs else 0.0


def _errors(items: list[WorkItem], staff: Staff) -> dict[int, str]:
    """{item: code and message} of those that ended badly."""
    bad = {item.pk: item.epoch for item in items if item.status in (states.FAILED, states.DEAD_LETTER)}
    if not bad:
        return {}
    found = Outcome.objects.filter(work_item_id__in=list(bad)).only(
        "work_item_id", "epoch", "error_code", "error_message"
    )
    return {
        o.work_item_id: f"{o.error_code}: {text_for(staff, o.error_message)}"
        for o in found
        if bad[o.work_item_id] == o.epoch
    }


def _turn_line(
    item: WorkItem, staff: Staff, number: int | None, error: str, spans: tuple[float, float], longest: float
) -> TurnLine:
    waited, ran = spans
    return TurnLine(
        at=item.created_at,
        pk=item.pk,
        job_id=item.job_id,
        number=number,
        place=item.session_seq,
        agent_name=item.agent_name,
        label=label(item.status),
        began=f"attempt {item.attempt} began after {_short(waited)}"
        if item.attempt > 1
        else f"waited {_short(waited)}",
        waited=_short(waited),
        ran=_short(ran) if item.started_at and item.status != states.SUSPENDED else "",
        waited_share=round(100 * waited / longest, 2),
        ran_share=round(100 * ran / longest, 2),
        when=moment(item.created_at),
        task=text_for(staff, item.task),
        cut=staff.may_read_content and len(item.task) > MAX_TEXT,
        error=error,
    )


def _acts(session: Session, *, since: datetime | None) -> list[ActLine]:
    return _acts_on("session", session.session_id, session.tenant, since=since)


def item_acts(item: WorkItem) -> list[ActLine]:
    """What people did to a job, newest first; what was asked for in vain too."""
    return _acts_on("job", item.job_id, item.tenant, since=None)


def _acts_on(object_type: str, object_id: str, tenant: str, *, since: datetime | None) -> list[ActLine]:
    """The newest acts on one thing, back to a time."""
    entries = AuditEntry.objects.filter(object_id=object_id, object_type=object_type, tenant=tenant)
    if since is not None:
        entries = entries.filter(at__gte=since)
    return [
        ActLine(
            at=entry.at,
            when=moment(entry.at),
            words=f"{entry.verb} by {entry.actor}: {entry.result.replace('_', ' ')}",
            reason=entry.reason,
        )
        for entry in entries.order_by("-pk")[:ACTS]
    ]


def item_steps(events: list[Any], acts: list[ActLine], staff: Staff) -> list[dict[str, Any]]:
    """A job's transitions and what people did, oldest first, a transition with the time since the one before it."""
    steps: list[dict[str, Any]] = []
    earlier: datetime | None = None
    for event in sorted([*events, *acts], key=lambda one: one.at):
        if isinstance(event, ActLine):
            steps.append({"act": event})
            continue
        steps.append(
            {
                "at": moment(event.at),
                "after": f"+{_short((event.at - earlier).total_seconds())}" if earlier else "",
                "event": event.event.replace("_", " "),
                "label": label(event.to_status) if event.to_status else None,
                "attempt": event.attempt,
                "epoch": event.epoch,
                "worker": event.worker[:8],
                "reason": _reason(event.reason, staff),
                "lost": event.reason.startswith("worker_lost"),
            }
        )
        earlier = event.at
    return steps


def _reason(text: str, staff: Staff) -> str:
    """A code is for everybody; what stands behind it, or alone, may be what an agent said."""
    code, _, said = text.partition(": ")
    if staff.may_read_content or CODE.fullmatch(text):
        return text[:MAX_TEXT]
    return f"{code}: {text_for(staff, said)}" if said and CODE.fullmatch(code) else text_for(staff, text)


def _short(seconds: float) -> str:
    """Under ten seconds with a tenth."""
    return f"{max(0.0, seconds):.1f} s" if seconds < 10 else duration(seconds)
