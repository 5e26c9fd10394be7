"""The proof: from what the store remembers and what the agents witnessed, what was promised was kept.

I1 nothing that got a handle is lost. I2 turns of a session commit in their order, never two live leases. I3 each turn
is committed once. I4 each turn saw exactly the state that the one before it left. I5 nothing is acked before its
commit, nor left behind after it. And every event of every job is a legal transition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from dispatch import states
from dispatch.demo.journal import Run
from dispatch.models import Outcome, WorkItem, WorkItemEvent
from dispatch.parts import parts
from sessions_app.models import Session, Turn

PAGE = 500
SHOWN = 20  # problems that a verdict prints


@dataclass(slots=True)
class Verdict:
    """What was looked at, and each promise that was not kept, in words."""

    turns: int = 0
    sessions: int = 0
    runs: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class _Item:
    """One job as the store remembers it."""

    pk: int
    job: str
    session: int
    seq: int
    status: str
    epoch: int
    outcomes: Mapping[int, Any]  # by epoch
    runs: Sequence[tuple[int, int, str, datetime | None, datetime | None]]  # number, epoch, status, from, until
    events: Sequence[tuple[str, str, int]]  # from, to, epoch


def prove(tenant: str, handles: Mapping[str, str], runs: Mapping[str, Run], left: int) -> Verdict:
    """Check everything. `handles`: {job id: session id}, as they were given out. `left`: queue rows of them now."""
    items = {item.job: item for item in _read(tenant, set(handles.values()))}
    verdict = Verdict(turns=len(handles), sessions=len(set(handles.values())), runs=len(runs))
    say = verdict.problems.append
    for job in sorted(handles.keys() - items.keys()):
        say(f"I1: {job} got a handle and is gone")
    for job in sorted(items.keys() - handles.keys()):
        say(f"I1: {job} was admitted and nobody got its handle")
    if left:
        say(f"I5: {left} queue rows are left of turns that have ended")
    by_session: dict[int, list[_Item]] = {}
    for item in items.values():
        verdict.problems += _of_item(item)
        by_session.setdefault(item.session, []).append(item)
    states_by_pk = {
        pk: state
        for part in parts(list(by_session), PAGE)
        for pk, state in Session.objects.filter(pk__in=part).values_list("pk", "state")
    }
    for pk, ours in by_session.items():
        verdict.problems += _of_session(sorted(ours, key=lambda item: item.seq), runs, states_by_pk.get(pk) or {})
    return verdict


def _read(tenant: str, session_ids: set[str]) -> Iterator[_Item]:
    for names in parts(sorted(session_ids), PAGE):
        rows = list(
            WorkItem.objects.filter(session__tenant=tenant, session__session_id__in=names).values_list(
                "pk", "job_id", "session_id", "session_seq", "status", "epoch"
            )
        )
        for part in parts(rows, PAGE):
            pks = [row[0] for row in part]
            outcomes: dict[int, dict[int, Any]] = {}
            for pk, epoch, result in Outcome.objects.filter(work_item_id__in=pks).values_list(
                "work_item_id", "epoch", "result"
            ):
                outcomes.setdefault(pk, {})[epoch] = result
            turns = _grouped(
                Turn.objects.filter(work_item_id__in=pks)
                .order_by("epoch", "pk")
                .values_list("work_item_id", "turn_number", "epoch", "status", "started_at", "finished_at")
            )
            events = _grouped(
                WorkItemEvent.objects.filter(work_item_id__in=pks)
                .order_by("pk")
                .values_list("work_item_id", "from_status", "to_status", "epoch")
            )
            for pk, job, session, seq, status, epoch in part:
                yield _Item(
                    pk=pk,
                    job=job,
                    session=session,
                    seq=seq,
                    status=status,
                    epoch=epoch,
                    outcomes=outcomes.get(pk, {}),
                    runs=turns.get(pk, []),
                    events=events.get(pk, []),
                )


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for pk, *rest in rows:
        found.setdefault(pk, []).append(tuple(rest))
    return found


def _of_item(item: _Item) -> Iterator[str]:
    if item.status != states.SUCCEEDED:
        yield f"I1: {item.job} is {item.status} and not succeeded"
    if list(item.outcomes) != [item.epoch]:
        yield f"I3: {item.job} has outcomes of epochs {sorted(item.outcomes)}, and its own is {item.epoch}"
    committed = [run for run in item.runs if run[2] == states.SUCCEEDED]
    if len(committed) != 1:
        yield f"I3: {item.job} has {len(committed)} committed turns"
    if not item.events or item.events[0][0] != "":
        yield f"events: the first one of {item.job} is not its submission"
        return
    for (_, at, seen), (was, to, epoch) in pairwise(item.events):
        if was != at:
            yield f"events: {item.job} went on from {was} after it came to {at}"
        elif to != was and to not in states.TRANSITIONS[was]:
            yield f"events: {item.job} went from {was} to {to}"
        if epoch < seen:
            yield f"events: the epoch of {item.job} fell from {seen} to {epoch}"
    if item.events[-1][1] != item.status:
        yield f"events: {item.job} is {item.status} and its last event says {item.events[-1][1]}"
    claims = [epoch for was, to, epoch in item.events if was == states.READY and to == states.RUNNING]
    if claims != sorted(set(claims)) or (claims and claims[-1] != item.epoch):
        yield f"I3: {item.job} was claimed with the epochs {claims}, and its own is {item.epoch}"


def _of_session(items: list[_Item], runs: Mapping[str, Run], state: Mapping[str, Any]) -> Iterator[str]:
    """`items` in the order of their places."""
    leases = sorted(
        ((begun, ended, item.job) for item in items for _, _, _, begun, ended in item.runs if begun and ended),
        key=lambda lease: lease[0],
    )
    for (_, until, first), (begun, _, second) in pairwise(leases):
        if begun < until:
            yield f"I2: {second} was leased at {begun} while {first} held its session until {until}"
    before: Run | None = None
    for place, item in enumerate(items, 1):
        if item.status != states.SUCCEEDED:
            continue
        numbers = [number for number, _, status, _, _ in item.runs if status == states.SUCCEEDED]
        if numbers != [place]:
            yield f"I2: {item.job} has place {place} in its session and committed as turn {numbers}"
        result = item.outcomes.get(item.epoch) or {}
        run = runs.get(str(result.get("run")))
        if run is None or run.job != item.job or run.end is None:
            yield f"I3: {item.job} shows the result of a run that nobody saw end"
            before = None
            continue
        expected = None if place == 1 else before and before.run
        if before is not None and before.end is not None and run.begin < before.end:
            yield f"I2: {item.job} began before {before.job} in front of it had ended"
        if run.seen != place - 1 or (run.last != expected and (before is not None or place == 1)):
            yield f"I4: {item.job}, turn {place}, saw the state of {run.seen} turns, the last by run {run.last}"
        before = run
    if before is not None and state != {"turns": len(items), "last": before.run}:
        yield f"I4: the state at the end is {dict(state)} after {len(items)} turns, the last by run {before.run}"
