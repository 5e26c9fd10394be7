"""What the authority promises, in plain Python: a model of items and sessions that a test compares the store with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dispatch import states
from dispatch.states import Verb

FAILED_ENDS = {states.FAILED, states.DEAD_LETTER}


@dataclass(eq=False)
class ModelSession:
    key: tuple[str, str]
    items: list[ModelItem] = field(default_factory=list)
    last_seq: int = 0
    turn_number: int = 0
    desired: str = "run"
    status: str = "active"
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def head(self) -> ModelItem | None:
        return min((item for item in self.items if not item.final), key=lambda item: item.seq, default=None)

    def settle_status(self) -> None:
        """What is true of the session now, as far as its head tells."""
        head = self.head
        live = head is not None and head.live
        if self.desired == "kill" and not live:
            self.desired, self.status = "run", "cancelled"
        if self.desired == "pause":
            self.status = "pause_requested" if live else "paused"
        elif self.desired == "kill":
            self.status = "kill_requested"
        elif head is not None:
            asks = head.status == states.SUSPENDED and head.suspended_for == "input"
            self.status = "needs_input" if asks else "active"


@dataclass(eq=False)
class ModelItem:
    job_id: str
    pk: int
    session: ModelSession
    seq: int
    max_attempts: int
    on_worker_lost: str
    status: str = states.READY
    attempt: int = 0
    epoch: int = 0
    owner: str | None = None
    later: bool = False  # its due time lies ahead
    parents: list[ModelItem] = field(default_factory=list)
    children: list[ModelItem] = field(default_factory=list)
    cancel_requested: bool = False
    suspended_for: str = ""
    ran: bool = False  # in this life, since its submission or its reopening
    runs: list[tuple[int, int, str]] = field(default_factory=list)  # (turn number, epoch, status)

    @property
    def final(self) -> bool:
        return self.status in states.TERMINAL

    @property
    def live(self) -> bool:
        return self.status in states.LIVE

    @property
    def children_ended(self) -> bool:
        return all(child.final for child in self.children)

    @property
    def claimable(self) -> bool:
        head = self.session.head is self and self.session.desired != "pause"
        return self.status == states.READY and head and not self.later


class Model:
    """Every rule changes the model as the contract says; nothing here has seen the product's code at work."""

    def __init__(self) -> None:
        self.items: list[ModelItem] = []
        self.sessions: dict[tuple[str, str], ModelSession] = {}
        self.counts: Counter[str] = Counter()

    def submit(
        self, key: tuple[str, str], pk: int, job_id: str, *, later: bool, parents: list[ModelItem], **more: Any
    ) -> None:
        session = self.sessions.setdefault(key, ModelSession(key))
        session.last_seq += 1
        item = ModelItem(job_id, pk, session, session.last_seq, later=later, parents=parents, **more)
        if any(parent.status != states.SUCCEEDED for parent in parents):
            item.status = states.SUBMITTED
        session.items.append(item)
        self.items.append(item)
        session.settle_status()
        self.follow()

    def claim(self, item: ModelItem, owner: str) -> None:
        assert item.claimable
        item.status, item.owner = states.RUNNING, owner
        item.epoch += 1
        item.attempt += 1

    def settle(self, item: ModelItem, verb: str, *, later: bool, state: dict[str, Any] | None) -> str:
        """Answers the status it ended in."""
        session = item.session
        if verb in states.NO_ATTEMPT_VERBS:
            item.attempt -= 1
        if verb in states.FINAL_VERBS:
            status = verb
        elif item.cancel_requested:
            status = states.CANCELLED
        else:
            status = states.SUSPENDED if verb == Verb.SUSPEND else states.READY
        item.owner, item.ran = None, True
        final = status in states.TERMINAL
        item.runs.append((session.turn_number + 1, item.epoch, status if final else verb))
        item.later = later and not final
        if final:
            if status == states.SUCCEEDED and state is not None:
                session.state = state
            self._finish(item, status)
        else:
            item.status = status
            session.settle_status()
        self.follow()
        return status

    def _finish(self, item: ModelItem, status: str, code: str | None = None) -> None:
        session = item.session
        if item.ran and session.head is item:
            session.turn_number += 1
        item.status, item.owner = status, None
        self.counts[states.counter_outcome(status, code)] += 1
        session.status = "failed" if status in FAILED_ENDS else session.status
        session.settle_status()

    def cancel(self, item: ModelItem, code: str = "cancelled") -> str:
        if item.final:
            return "too_late"
        item.cancel_requested = True
        if item.live:
            return "requested"
        self._finish(item, states.CANCELLED, code)
        return "done"

    def rescue(self, item: ModelItem) -> None:
        item.ran, item.owner = True, None
        number = item.session.turn_number + 1
        if item.cancel_requested:
            end = states.CANCELLED
        elif item.on_worker_lost == "fail":
            end = states.FAILED
        elif item.attempt >= item.max_attempts:
            end = states.DEAD_LETTER
        else:
            item.runs.append((number, item.epoch, "worker_lost"))
            item.status, item.later = states.READY, False
            item.session.settle_status()
            return
        item.runs.append((number, item.epoch, end))
        self._finish(item, end)
        self.follow()

    def wake(self, item: ModelItem) -> None:
        item.status, item.later = states.READY, False
        item.session.settle_status()

    def retry(self, item: ModelItem) -> bool:
        """False: it is refused."""
        if item.status not in states.RETRYABLE:
            return False
        if any(parent.final and parent.status != states.SUCCEEDED for parent in item.parents):
            return False
        session = item.session
        waits = any(parent.status != states.SUCCEEDED for parent in item.parents)
        session.last_seq += 1
        item.seq, item.status = session.last_seq, states.SUBMITTED if waits else states.READY
        item.epoch += 1
        item.attempt, item.later, item.ran, item.cancel_requested, item.suspended_for = 0, False, False, False, ""
        session.settle_status()
        return True

    def control(self, session: ModelSession, desired: str) -> None:
        session.desired = desired
        session.settle_status()

    def kill(self, session: ModelSession) -> None:
        todo = [item for item in session.items if not item.final]
        if not todo:
            return
        if session.desired == "run":
            session.desired = "kill"
        for item in todo:
            self.cancel(item)
        session.settle_status()
        self.follow()

    def follow(self) -> None:
        """Let go or cancel what waited, until nothing moves."""
        moved = True
        while moved:
            moved = False
            for item in self.items:
                if item.status == states.SUBMITTED:
                    if any(p.final and p.status != states.SUCCEEDED for p in item.parents):
                        self._finish(item, states.CANCELLED, "dependency")
                        moved = True
                    elif all(p.status == states.SUCCEEDED for p in item.parents):
                        item.status = states.READY
                        item.session.settle_status()
                        moved = True
                elif item.status == states.SUSPENDED and item.suspended_for == "children" and item.children_ended:
                    self.wake(item)
                    moved = True
