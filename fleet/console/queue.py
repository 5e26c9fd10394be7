"""The queue page: what waits, for what, since when, and what holds it up. An unread part is unknown, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from dispatch import wiring
from dispatch.gates import shut_by
from dispatch.models import ClaimGate, DeadEnvelope
from dispatch.ports import Gates
from dispatch.wording import gate_words
from fleet import queue, selectors
from fleet.console.attention import marks_of
from fleet.console.base import moment
from fleet.console.charts import Span
from fleet.console.frame import for_staff, framed
from fleet.console.gates import pause_href
from fleet.console.graphs import Graphs, graphs, read_samples, span_asked
from fleet.console.labels import BAD, QUIET, WARN, Label, duration, label
from fleet.console.roles import Staff, staff_of
from fleet.console.tiles import UNKNOWN, Tile, number
from fleet.console.trends import moved
from fleet.models import FleetSample
from fleet.queue import Dead, Lane, Lanes, Waiting
from fleet.reads import Reads
from fleet.selectors import ReadyTurns

LANES, HEADS, DEAD = 50, 15, 10  # rows shown
PARKED = [wait for wait in queue.WAITS if wait not in (queue.READY, queue.RUNNING, queue.BEHIND)]
FULL = 0.8  # of the bound, after which depth is told in a warning colour


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneLine:
    kind: str
    agent_name: str
    tenant: str
    label: Label
    ready: int
    oldest: str
    running: int
    behind: int
    parked: str
    pause_href: str  # the form that pauses its agent; "" where that is done, or for who may not


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingLine:
    job_id: str
    href: str
    session_id: str
    agent_name: str
    tenant: str
    label: Label
    since: SafeString | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    count: str
    words: str
    variant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLine:
    digest: str
    reason: str
    transport: str
    size: str
    seen: SafeString | str


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePage:
    """All that the template prints; a list that could not be read is None. `dead` is for who sees every tenant."""

    read_at: datetime
    reach: str
    tiles: list[Tile]
    reasons: list[Reason] | None
    lanes: list[LaneLine] | None
    more_lanes: int
    is_whole: bool
    window: int
    waiting: list[WaitingLine] | None
    pauses: list[str] | None
    pauses_href: str
    sees_all: bool
    dead: list[DeadLine] | None
    dead_count: str
    graphs: Graphs | None


@for_staff(lambda staff: staff.may_view)
def queue_view(request: HttpRequest) -> HttpResponse:
    return framed(request, "fleet/queue.html", "Queue", queue_page(staff_of(request), span_asked(request)))


def queue_page(staff: Staff, span: Span) -> QueuePage:
    now, whole = timezone.now(), staff.tenants is None
    samples: list[FleetSample] | None = None
    depth = dead = None
    with Reads() as reads:
        shut = reads.attempt("gates", lambda: selectors.gates_shut(tenant=staff.tenants))
        gates = shut_by(shut or [])
        found = reads.attempt("lanes", lambda: queue.lanes(tenant=staff.tenants))
        ready = reads.attempt("ready", lambda: selectors.ready_turns(tenant=staff.tenants, gates=gates))
        waiting = reads.attempt("waiting", lambda: queue.longest_waiting(tenant=staff.tenants, limit=HEADS))
        marks = reads.attempt("marks", lambda: marks_of(staff.tenants)) if whole else None
        if whole:
            depth = reads.attempt("depth", lambda: wiring.transport().depth())
            dead = reads.attempt("dead envelopes", lambda: queue.dead_envelopes(limit=DEAD))
            samples = reads.attempt("samples", lambda: read_samples(span, now))
    if shut is None:
        ready = None  # what a pause holds is not ready
    return QueuePage(
        read_at=now,
        reach=staff.reach,
        tiles=_tiles(staff, depth, ready, found, dead, samples or [], now),
        reasons=None if found is None else _reasons(found),
        lanes=None
        if found is None
        else [_lane(lane, shut, gates, may_pause=staff.may_steer_all) for lane in found.lanes[:LANES]],
        more_lanes=max(0, len(found.lanes) - LANES) if found else 0,
        is_whole=found is None or found.is_whole,
        window=queue.WINDOW,
        waiting=None if waiting is None else [_waiting(line) for line in waiting],
        pauses=None if shut is None else [gate_words(gate, now) for gate in shut],
        pauses_href=reverse("admin:dispatch_claimgate_changelist"),
        sees_all=whole,
        dead=None if dead is None else [_dead(envelope) for envelope in dead.newest],
        dead_count=number(None if dead is None else dead.count),
        graphs=graphs(samples, span, now, marks or []) if whole else None,
    )


def _tiles(
    staff: Staff,
    depth: int | None,
    ready: ReadyTurns | None,
    found: Lanes | None,
    dead: Dead | None,
    samples: list[FleetSample],
    now: datetime,
) -> list[Tile]:
    items = reverse("admin:dispatch_workitem_changelist")
    count = None if ready is None else ready.count
    oldest = None if ready is None else ready.oldest_s
    tiles = [
        Tile(
            title="Ready",
            value=number(count),
            note="a worker could claim them now",
            trend=moved(samples, now, count, lambda sample: sample.ready),
            href=f"{items}?state=ready",
        ),
        Tile(
            title="Oldest ready",
            value=UNKNOWN if ready is None else "–" if oldest is None else duration(oldest),
            note="not read" if ready is None else "nothing is ready" if oldest is None else "has waited so long",
            href="#waiting",
        ),
        Tile(
            title="In flight",
            value=number(None if found is None else found.total(queue.RUNNING)),
            note="hold a lease",
            href=f"{items}?state=running",
        ),
    ]
    if staff.tenants is None:
        tiles += [_depth(depth), _dead_tile(dead)]
    return tiles


def _depth(depth: int | None) -> Tile:
    """What the transport itself says, against the admission bound."""
    made, bound = wiring.transport(), int(settings.FLEETSITE.dispatch_max_depth)
    full = depth is not None and depth >= FULL * bound
    return Tile(
        title="Lag of the group" if made.envelopes is not None else "Depth",
        value=number(depth),
        note=f"{made.name}, not readable: admission is shut" if depth is None else f"{made.name}, at most {bound:,}",
        href="#lanes",
        variant=BAD if depth is None else WARN if full else QUIET,
    )


def _dead_tile(dead: Dead | None) -> Tile:
    return Tile(
        title="Dead envelopes",
        value=number(None if dead is None else dead.count),
        note="no job stands behind them",
        href="#dead",
        variant=WARN if dead is not None and dead.count else QUIET,
    )


def _reasons(found: Lanes) -> list[Reason]:
    """How many wait for what, in the order of their way to a worker; what nobody waits for is left out."""
    return [
        Reason(count=f"{found.total(wait):,}", words=wait, variant=label(wait).variant)
        for wait in queue.WAITS
        if found.total(wait)
    ]


def _lane(lane: Lane, shut: list[ClaimGate] | None, gates: Gates, *, may_pause: bool) -> LaneLine:
    return LaneLine(
        kind=lane.kind.replace("_", " "),
        agent_name=lane.agent_name,
        tenant=lane.tenant,
        label=label(UNKNOWN if shut is None else "paused" if _is_shut(lane, gates) else "open"),
        ready=lane.counts.get(queue.READY, 0),
        oldest="–" if lane.oldest_ready_s is None else duration(lane.oldest_ready_s),
        running=lane.counts.get(queue.RUNNING, 0),
        behind=lane.counts.get(queue.BEHIND, 0),
        pause_href="" if not may_pause or _is_shut(lane, gates) else pause_href("agent", lane.agent_name),
        parked=", ".join(f"{lane.counts[wait]:,} {wait}" for wait in PARKED if wait in lane.counts) or "–",
    )


def _is_shut(lane: Lane, gates: Gates) -> bool:
    return gates.fleet or lane.kind in gates.kinds or lane.agent_name in gates.agents or lane.tenant in gates.tenants


def _waiting(line: Waiting) -> WaitingLine:
    return WaitingLine(
        job_id=line.job_id,
        href=reverse("admin:dispatch_workitem_change", args=[line.pk]),
        session_id=line.session_id,
        agent_name=line.agent_name,
        tenant=line.tenant,
        label=label(line.state),
        since=moment(line.since),
    )


def _dead(envelope: DeadEnvelope) -> DeadLine:
    return DeadLine(
        digest=envelope.digest[:12],
        reason=envelope.reason.replace("_", " "),
        transport=envelope.transport,
        size=f"{envelope.size:,} bytes",
        seen=moment(envelope.seen_at),
    )
