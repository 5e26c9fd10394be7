"""The real authority over the test's store: shorthands to act on it, and the checks that hold after every act."""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Max, Sum

from dispatch import states, wiring
from dispatch.authority import WorkAuthority
from dispatch.authority.submit import NewItem
from dispatch.clock import store_now
from dispatch.models import Outcome, TurnCounter, WorkItem, WorkItemEvent
from dispatch.ports import Lease, QueueRow, Serves, Settlement, StepResult, Transport
from dispatch.states import QueueState, Verb
from dispatch.transports.sqlite import SQLiteTransport
from sessions_app.models import Session, Turn

AGENT = "echo"
SERVES = Serves(agents=(AGENT, "other"), kinds=(states.ORCHESTRATOR_TASK,))
NOTHING = Serves(agents=(), kinds=())
TTL_S = 60.0
PAST = timedelta(seconds=30)
DUE_STATES = {QueueState.CLAIMABLE, QueueState.DUE_LATER}
TABLES = (
    "work_item_dependencies",
    "work_item_events",
    "outcomes",
    "step_results",
    "output_chunks",
    "model_usage",
    "model_totals",
    "questions",
    "coalesced_requests",
    "webhook_deliveries",
    "webhook_watches",
    "webhook_endpoints",
    "turns",
    "goals",
    "goal_iterations",
    "work_items",
    "sessions",
    "turn_counters",
    "claim_gates",
    "claim_limits",
)


def counted() -> dict[str, int]:
    """The counter of turns by outcome, over its shards."""
    sums = TurnCounter.objects.values("outcome").annotate(total=Sum("count")).values_list("outcome", "total")
    return dict(sums)


def forget() -> None:
    """Drop the process's authorities, and the queue's file with them."""
    for authority in list(wiring._made.values()):
        transport = authority.transport
        transport.close()
        if isinstance(transport, SQLiteTransport) and transport.path.name == "queue.db":  # a test's own
            shutil.rmtree(transport.path.parent, ignore_errors=True)
    wiring._made.clear()


class Undone(Exception):
    """The caller changed its mind."""


@contextlib.contextmanager
def undone() -> Iterator[None]:
    """A caller's transaction that rolls back."""
    with contextlib.suppress(Undone), transaction.atomic():
        yield
        raise Undone


def wipe() -> None:
    """Empty the store and the queue."""
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f'DELETE FROM "{table}"')
    with transport().transaction():
        while rows := transport().page(after=0, limit=1_000):
            transport().ack([row.item_id for row in rows])


def authority(max_depth: int | None = None) -> WorkAuthority:
    """The process's authority, or one with a bound of its own over the same queue."""
    if max_depth is None:
        return wiring.authority()
    return WorkAuthority(transport=wiring.transport(), max_depth=max_depth)


def transport() -> Transport:
    return wiring.transport()


def new(session: str = "s", *, tenant: str = "t1", job_id: str = "", **more: Any) -> NewItem:
    values: dict[str, Any] = {
        "job_id": job_id or f"orch-{uuid.uuid4().hex}",
        "tenant": tenant,
        "session_id": session,
        "kind": states.ORCHESTRATOR_TASK,
        "agent_name": AGENT,
        "priority": 2,
        "max_attempts": 3,
        "on_worker_lost": "retry",
        "task": "do it",
    }
    return NewItem(**{**values, **more})


def add(session: str = "s", **more: Any) -> WorkItem:
    """Submit one and read it back."""
    (submitted,) = authority().submit([new(session, **more)])
    return WorkItem.objects.get(job_id=submitted.job_id)


def fresh(item: WorkItem) -> WorkItem:
    return WorkItem.objects.get(pk=item.pk)


def fresh_by(item_id: int) -> WorkItem:
    return WorkItem.objects.get(pk=item_id)


def session_of(item: WorkItem) -> Session:
    return Session.objects.get(pk=item.session_id)


def step(
    settle: Sequence[Settlement] = (),
    *,
    owner: str = "w1",
    want: int = 0,
    serves: Serves = SERVES,
    ttl_s: float = TTL_S,
) -> StepResult:
    return authority().step(owner=owner, ttl_s=ttl_s, settle=settle, want=want, serves=serves, cursor="")


def claim(owner: str = "w1", want: int = 1) -> list[Lease]:
    return list(step(owner=owner, want=want).claimed)


def claim_one(owner: str = "w1") -> Lease:
    (lease,) = claim(owner)
    return lease


def claim_item(item: WorkItem, owner: str = "w1", ttl_s: float = TTL_S) -> Lease:
    lease = authority().claim(item.job_id, owner=owner, ttl_s=ttl_s, serves=SERVES)
    assert isinstance(lease, Lease), lease
    return lease


def settlement(lease: Lease, verb: str = Verb.SUCCEEDED, **more: Any) -> Settlement:
    return Settlement(lease=lease, verb=verb, **more)


def end(lease: Lease, verb: str = Verb.SUCCEEDED, **more: Any) -> StepResult:
    return step([settlement(lease, verb, **more)], owner=lease.owner)


def run(item: WorkItem, verb: str = Verb.SUCCEEDED, **more: Any) -> WorkItem:
    """Claim an item, end it and read it back."""
    end(claim_item(item), verb, **more)
    return fresh(item)


def lapse(*items: WorkItem | Lease) -> None:
    """Let leases have ended a while ago."""
    pks = [item.item_id if isinstance(item, Lease) else item.pk for item in items]
    WorkItem.objects.filter(pk__in=pks).update(lease_expires_at=store_now() - PAST)


def rescue(*items: WorkItem | Lease) -> int:
    lapse(*items)
    return authority().transitions.rescue()


def come_due(item: WorkItem) -> None:
    """Let the time that an item waits for have come, in the state and in the queue."""
    moment = store_now() - PAST
    WorkItem.objects.filter(pk=item.pk).update(due_at=moment)
    rewrite(item.pk, due_at=moment.timestamp())


def pass_deadline(item: WorkItem) -> None:
    moment = store_now() - PAST
    WorkItem.objects.filter(pk=item.pk).update(deadline=moment)
    rewrite(item.pk, deadline=moment.timestamp())


def rewrite(item_id: int, **changes: Any) -> None:
    """Change a queue row behind the authority's back."""
    with transport().transaction():
        row = transport().rows([item_id]).get(item_id)
        if row is not None:
            transport().publish([replace(row, **changes)])


def row_of(item: WorkItem) -> QueueRow | None:
    return transport().rows([item.pk]).get(item.pk)


def queue_rows() -> dict[int, QueueRow]:
    return {row.item_id: row for row in transport().page(after=0, limit=1_000_000)}


def events(item: WorkItem) -> list[str]:
    return list(WorkItemEvent.objects.filter(work_item=item).order_by("id").values_list("event", flat=True))


def outcome_of(item: WorkItem) -> Outcome:
    return Outcome.objects.get(work_item_id=item.pk, epoch=WorkItem.objects.values_list("epoch").get(pk=item.pk)[0])


# -- what holds after every act ----------------------------------------------------------------------------------------
def check() -> None:
    """The invariants that the database alone can show."""
    items = list(WorkItem.objects.order_by("session_id", "session_seq"))
    sessions = {session.pk: session for session in Session.objects.all()}
    _check_sessions(items, sessions)
    _check_queue(items, sessions)
    _check_ends(items)
    _check_events(items)
    _check_turns(items, sessions)


def _check_sessions(items: Iterable[WorkItem], sessions: dict[int, Session]) -> None:
    heads: dict[int, int] = {}
    live: Counter[int] = Counter()
    last: dict[int, int] = {}
    for item in items:
        last[item.session_id] = item.session_seq
        live[item.session_id] += item.status in states.LIVE
        if item.status not in states.TERMINAL:
            heads.setdefault(item.session_id, item.session_seq)
        if item.status in states.LIVE:
            assert item.session_seq == heads[item.session_id], f"{item} runs before its turn"
    assert not [pk for pk, count in live.items() if count > 1], "two live leases in one session"
    for pk, session in sessions.items():
        assert session.head_seq == heads.get(pk), f"head of session {session}"
        assert session.last_seq >= last.get(pk, 0)


def _check_queue(items: Iterable[WorkItem], sessions: dict[int, Session]) -> None:
    rows, now = queue_rows(), store_now()
    wanted: dict[int, int] = {}
    for item in items:
        if item.status in states.TERMINAL:
            continue
        session = sessions[item.session_id]
        later = item.due_at is not None and item.due_at > now
        wanted[item.pk] = states.queue_state(
            status=item.status, is_head=item.session_seq == session.head_seq, desired=session.desired, due_later=later
        )
    assert rows.keys() == wanted.keys(), "each unfinished item has its row, and nothing else has one"
    for pk, row in rows.items():
        awaits_tick = {row.state, wanted[pk]} == DUE_STATES and row.due_at is not None and row.due_at <= time.time()
        assert row.state == wanted[pk] or awaits_tick, f"row {row} should say {wanted[pk]}"
    assert transport().depth() == sum(row.state != QueueState.SUSPENDED for row in rows.values()), "depth"


def _check_ends(items: Iterable[WorkItem]) -> None:
    written = Outcome.objects.values_list("work_item", "epoch", "status")
    outcomes = {(pk, epoch): status for pk, epoch, status in written}
    assert len(outcomes) == Outcome.objects.count(), "one outcome for each item and epoch"
    for item in items:
        final = item.status in states.TERMINAL
        assert (item.finished_at is not None) == final, f"finished_at of {item}"
        assert (item.owner is not None) == (item.status in states.LIVE), f"owner of {item}"
        assert outcomes.get((item.pk, item.epoch)) == (item.status if final else None), f"outcome of {item}"
    ends = WorkItemEvent.objects.filter(to_status__in=sorted(states.TERMINAL)).exclude(from_status=F("to_status"))
    counted = TurnCounter.objects.filter(outcome__in=set(states.COUNTER_OUTCOMES) - {"skipped"}).values_list(
        "count", flat=True
    )
    assert ends.count() == sum(counted), "counters equal terminal events"
    assert ends.count() == len(outcomes), "each end has its outcome"


def _check_events(items: Iterable[WorkItem]) -> None:
    chain: dict[int, list[tuple[str, str, int]]] = {}
    for pk, was, to, epoch in WorkItemEvent.objects.order_by("id").values_list(
        "work_item", "from_status", "to_status", "epoch"
    ):
        chain.setdefault(pk, []).append((was, to, epoch))
    for item in items:
        (begun, at, seen), *rest = chain[item.pk]
        assert begun == "", f"{item} begins with its submission"
        for was, to, epoch in rest:
            assert was == at, f"events of {item} have a gap: {chain[item.pk]}"
            assert was == to or to in states.TRANSITIONS[was], f"{item}: {was} → {to}"
            assert epoch >= seen, f"the epoch of {item} fell"
            at, seen = to, epoch
        assert (at, item.epoch >= seen) == (item.status, True), f"events of {item} end elsewhere"


def _check_turns(items: Iterable[WorkItem], sessions: dict[int, Session]) -> None:
    by_session: dict[int, dict[int, set[int]]] = {}
    for session_pk, number, item_pk in Turn.objects.values_list("session_id", "turn_number", "work_item_id"):
        by_session.setdefault(session_pk, {}).setdefault(number, set()).add(item_pk)
    for pk, session in sessions.items():
        numbers = by_session.get(pk, {})
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), f"turn numbers of {session} are not dense"
        assert all(len(of) == 1 for of in numbers.values()), f"a turn number of {session} belongs to two jobs"
        assert session.turn_number in (len(numbers), len(numbers) - 1), f"turn number of {session}"
    # turns commit in the order of their places; a job that was reopened has had another place before
    reopened = set(WorkItemEvent.objects.filter(event="reopened").values_list("work_item", flat=True))
    last = dict(Turn.objects.values("work_item_id").annotate(n=Max("turn_number")).values_list("work_item_id", "n"))
    before: dict[int, int] = {}
    for item in items:
        if item.pk in last and item.pk not in reopened:
            assert last[item.pk] > before.get(item.session_id, 0), f"{item} ran out of order"
            before[item.session_id] = last[item.pk]
