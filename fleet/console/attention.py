"""What a person on call should look at first: each in one sentence, with the way to where it is mended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Min, Q, QuerySet, Value
from django.urls import reverse

from dispatch import states
from dispatch.models import DispatchWorker, Question, Schedule, WebhookDelivery, WorkItem
from fleet.console.charts import Mark
from fleet.console.labels import BAD, WARN, ago, counted
from fleet.console.roles import Staff
from fleet.reads import Reads
from fleet.selectors import Tenants, scoped
from sessions_app.models import AuditEntry

UNSEEN = timedelta(seconds=60)  # after which an act that nothing came of is told
NEW = timedelta(hours=1)  # how long a dead letter is news
GIVEN_UP = timedelta(days=1)  # how long a callback that nobody took is told
LATE = timedelta(seconds=30)  # of a schedule
ACTS = 6  # told on the page
MARKS = 100  # marked on charts


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One thing to look at."""

    words: str
    href: str
    variant: str
    icon: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """What somebody did on purpose."""

    words: str
    reason: str
    ago: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """The worst first. What could not be read is None. `running`: turns that hold a lease. `silent`: consumers."""

    running: int | None
    silent: int | None
    notices: list[Notice] | None
    acts: list[Act] | None
    marks: list[Mark]  # the same acts and those before them, for charts


@dataclass(frozen=True, slots=True)
class Found:
    count: int
    first: datetime  # when the oldest of them began


def attention(staff: Staff, now: datetime, reads: Reads, *, is_stalled: bool) -> Attention:
    found = reads.attempt("attention", lambda: _find(staff.tenants, now))
    entries = reads.attempt("acts", lambda: _entries(staff.tenants))
    return Attention(
        running=None if found is None else found["running"].count if "running" in found else 0,
        silent=None if found is None else found["silent"].count if "silent" in found else 0,
        notices=None if found is None else _notices(found, now, is_stalled=is_stalled),
        acts=None if entries is None else [_act(entry, now) for entry in entries[:ACTS]],
        marks=[_mark(entry) for entry in entries or ()],
    )


def marks_of(tenants: Tenants) -> list[Mark]:
    """What was done lately, for charts."""
    return [_mark(entry) for entry in _entries(tenants)]


def _find(tenants: Tenants, now: datetime) -> dict[str, Found]:
    """How many of each are there, and since when; in one statement, for the page has few to spend."""
    late = DispatchWorker.objects.filter(last_heartbeat__lt=now - timedelta(seconds=settings.FLEETSITE.worker_stale_s))
    live = scoped(WorkItem.objects.filter(status__in=sorted(states.LIVE)), tenants)
    open_now = scoped(Question.objects.still_open(), tenants, path="session__tenant")
    behind = Schedule.objects.filter(Q(refused_since__isnull=False) | Q(next_run_at__lt=now - LATE), enabled=True)
    lettered = WorkItem.objects.filter(status=states.DEAD_LETTER, finished_at__gte=now - NEW)
    given_up = WebhookDelivery.objects.filter(state=WebhookDelivery.DEAD, created_at__gte=now - GIVEN_UP)
    dead = scoped(given_up, tenants, path="work_item__tenant")
    parts = [
        _counted("running", live, "started_at"),
        _counted("held", live.filter(owner__in=late.values("token")), "lease_expires_at"),
        _counted("silent", late, "last_heartbeat"),
        _counted("unheard", live.filter(cancel_requested_at__lt=now - UNSEEN), "cancel_requested_at"),
        _counted("questions", open_now, "asked_at"),
        _counted("schedules", scoped(behind, tenants), "next_run_at"),
        _counted("callbacks", dead, "created_at"),
        _counted("unreaped", live.filter(lease_expires_at__lt=now - UNSEEN), "lease_expires_at"),
        _counted("dead letters", scoped(lettered, tenants), "finished_at"),
    ]
    return {what: Found(count, first) for what, count, first in parts[0].union(*parts[1:], all=True) if count}


def _counted(what: str, rows: QuerySet[Any], since: str) -> QuerySet[Any]:
    named = rows.order_by().annotate(what=Value(what)).values("what")
    counted: QuerySet[Any] = named.annotate(count=Count("pk"), first=Min(since)).values_list("what", "count", "first")
    return counted


def _notices(found: dict[str, Found], now: datetime, *, is_stalled: bool) -> list[Notice]:
    """The rules: what is told of what was found, the worst first."""
    told = []
    if is_stalled and (running := found.get("running")):
        words = f"stalled: {counted(running.count, 'turn')} running and none has ended for 5 min"
        href = f"{reverse('admin:dispatch_workitem_changelist')}?state=running"
        told.append(Notice(words=words, href=href, variant=BAD, icon="hourglass_disabled"))
    if silent := found.get("silent"):
        held = found.get("held")
        words = f"{counted(silent.count, 'consumer')} silent, " + (
            f"{counted(held.count, 'lease')} still held" if held else "nothing held"
        )
        lost = f"{reverse('admin:dispatch_workitem_changelist')}?lease=lost"
        href = lost if held else reverse("admin:dispatch_dispatchworker_changelist")
        told.append(Notice(words=words, href=href, variant=BAD if held else WARN, icon="dns"))
    if unheard := found.get("unheard"):
        words = f"{counted(unheard.count, 'turn')} told to stop and still running, the first {ago(unheard.first, now)}"
        href = f"{reverse('admin:dispatch_workitem_changelist')}?state=running"
        told.append(Notice(words=words, href=href, variant=BAD, icon="block"))
    if unreaped := found.get("unreaped"):
        words = f"{counted(unreaped.count, 'lease')} expired and not taken back, the first {ago(unreaped.first, now)}"
        href = f"{reverse('admin:dispatch_workitem_changelist')}?lease=expired"
        told.append(Notice(words=words, href=href, variant=BAD, icon="lock_clock"))
    if lettered := found.get("dead letters"):
        words = f"{counted(lettered.count, 'dead letter')} in the last hour, the first {ago(lettered.first, now)}"
        href = f"{reverse('admin:dispatch_workitem_changelist')}?state=dead_letter"
        told.append(Notice(words=words, href=href, variant=BAD, icon="inbox_customize"))
    if asked := found.get("questions"):
        words = f"{counted(asked.count, 'session')} waiting for an answer, the oldest {ago(asked.first, now)}"
        href = f"{reverse('admin:sessions_app_session_changelist')}?state=needs_input"
        told.append(Notice(words=words, href=href, variant=WARN, icon="contact_support"))
    if behind := found.get("schedules"):
        words = f"{counted(behind.count, 'schedule')} late or refused, the first due {ago(behind.first, now)}"
        href = reverse("admin:dispatch_schedule_changelist")
        told.append(Notice(words=words, href=href, variant=WARN, icon="schedule"))
    if dead := found.get("callbacks"):
        words = f"{counted(dead.count, 'callback')} that nobody took, the oldest made {ago(dead.first, now)}"
        href = f"{reverse('admin:dispatch_webhookdelivery_changelist')}?state=dead"
        told.append(Notice(words=words, href=href, variant=WARN, icon="webhook"))
    return sorted(told, key=lambda notice: notice.variant != BAD)


def _entries(tenants: Tenants) -> list[AuditEntry]:
    return list(scoped(AuditEntry.objects.order_by("-pk"), tenants)[:MARKS])


def _act(entry: AuditEntry, now: datetime) -> Act:
    return Act(
        words=f"{entry.actor}: {_what(entry)} {entry.object_id}, {_plain(entry.result)}",
        reason=entry.reason,
        ago=ago(entry.at, now),
    )


def _mark(entry: AuditEntry) -> Mark:
    why = f" ({entry.reason[:80]})" if entry.reason else ""
    return Mark(at=entry.at, words=f"{_what(entry)} {entry.object_id} by {entry.actor}{why}")


def _what(entry: AuditEntry) -> str:
    return entry.verb if entry.verb == entry.object_type else f"{entry.verb} {_plain(entry.object_type)}"


def _plain(word: str) -> str:
    return word.replace("_", " ")
