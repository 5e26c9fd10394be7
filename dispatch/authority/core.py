"""The authority as one object: admission, the step, leases, and the cold transitions over one store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import connection

from dispatch.authority.deliveries import DeliveryStep
from dispatch.authority.deliveries_postgres import PostgresDeliveryStep
from dispatch.authority.leases import Leases
from dispatch.authority.limits import Room, read_holds
from dispatch.authority.projection import project, rebuild, still_astray, strays
from dispatch.authority.publication import Publication
from dispatch.authority.refusals import Candidate, refusal
from dispatch.authority.removal import Removal
from dispatch.authority.step import Step
from dispatch.authority.step_postgres import PostgresStep
from dispatch.authority.store import Store, lock_sessions, retry_deadlock
from dispatch.authority.submit import NewItem, Submission, Submitted, replace_unstarted, still_running
from dispatch.authority.submit_postgres import PostgresSubmission
from dispatch.authority.transitions import Noted, Transitions, unnoted
from dispatch.clock import store_now
from dispatch.models import WorkItem
from dispatch.ports import Fence, Lease, RenewResult, Serves, Settlement, StepResult, Transport
from dispatch.states import ErrorCode, Refusal

TICK_S, RESEND_S = 5.0, 600.0


class WorkAuthority:
    """Every transition of every item. One per process; safe to use from many threads."""

    def __init__(
        self,
        *,
        transport: Transport,
        max_depth: int,
        guard: Callable[[], None] = lambda: None,
        tick_s: float = TICK_S,
        resend_s: float = RESEND_S,
    ) -> None:
        """`tick_s`: period of the ticks; `resend_s`: after so long unclaimed, a turn's envelope is sent again."""
        self.transport = transport
        self._envelopes = transport.envelopes
        self._store = Store(
            transport,
            project=lambda ids: project(transport, ids),
            rebuild=lambda: void(rebuild(transport)),
            follow_up=self._follow_up,
            announce=self._announce,
            guard=guard,
        )
        self.transitions = Transitions(self._store, max_depth=max_depth)
        self.removal = Removal(self._store)
        in_store = transport.capabilities.settles_in_one_statement
        self._step = self._make_step(in_store, tick_s)
        self._leases = Leases()
        submission = PostgresSubmission if in_store else Submission
        self._submission = submission(
            self._store, max_depth=max_depth, interrupt=self._interrupt, stop_later=self._envelopes is not None
        )
        self._publication = (
            Publication(self._store, self._envelopes, tick_s=tick_s, resend_s=resend_s) if self._envelopes else None
        )

    def _make_step(self, in_store: bool, tick_s: float) -> Step:
        function = {"follow_up": self._follow_up, "put_right": lambda ids: self.transitions.resync(ids)}
        if self._envelopes is None:
            return PostgresStep(self._store, **function) if in_store else Step(self._store)
        if in_store:
            return PostgresDeliveryStep(self._store, envelopes=self._envelopes, idle_s=tick_s, **function)
        return DeliveryStep(self._store, envelopes=self._envelopes, idle_s=tick_s)

    def _follow_up(self, ids: set[int]) -> None:
        self.transitions.follow_up(ids)

    def _announce(self, ids: set[int]) -> None:
        if self._publication is not None:
            self._publication.announce(ids)

    # -- admission -----------------------------------------------------------------------------------------------------
    def submit(self, items: Sequence[NewItem]) -> list[Submitted]:
        """Admit jobs; see Submission.submit. Where envelopes carry them, what could not be sent is withdrawn.

        A turn that such a job interrupts is told to stop once the broker has the job: a refused one has stopped nobody.
        """
        if self._publication is None:
            return retry_deadlock(lambda: self._submission.submit(items))
        self._publication.refuse_when_blind()
        answers = self._publication.send_new(items, retry_deadlock(lambda: self._submission.submit(items)))
        for item, answer in zip(items, answers, strict=True):
            if item.on_busy == "interrupt" and answer.error is None:
                repeated = answer.existing and answer.fingerprint == item.fingerprint
                running = still_running(answer.item_id) if repeated else answer.interrupts
                if running is not None:
                    self._interrupt(running)
        return answers

    def _interrupt(self, item_id: int) -> None:
        self.transitions.cancel([item_id], code=ErrorCode.CANCELLED, reason="interrupted by a newer turn")

    def retry(self, item_id: int, *, deadline_s: float | None = None, noted: Noted = unnoted) -> None:
        """Make an ended job ready again; see Transitions.retry. Refused while the broker cannot be seen."""
        if self._publication is not None:
            self._publication.refuse_when_blind()
        self.transitions.retry(item_id, deadline_s=deadline_s, noted=noted)

    def replace_unstarted(self, item_id: int, *, task: str, payload: Mapping[str, Any]) -> bool:
        """Give a turn that has never run another task; False when it cannot be any more."""
        return replace_unstarted(item_id, task=task, payload=payload)

    # -- the worker's side ---------------------------------------------------------------------------------------------
    def step(
        self, *, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        """Settle what ended and claim up to `want` turns, in one commit."""
        return self._step.step(owner=owner, ttl_s=ttl_s, settle=settle, want=want, serves=serves, cursor=cursor)

    def renew(self, *, ttl_s: float, leases: Sequence[Fence]) -> RenewResult:
        result = self._leases.renew(ttl_s=ttl_s, leases=leases)
        if self._envelopes is not None:
            lost = set(result.lost)
            self._envelopes.inbox.renewed([fence for fence in leases if fence[0] not in lost], ttl_s=ttl_s)
        return result

    def cancels(self, *, leases: Sequence[Fence]) -> RenewResult:
        return self._leases.cancels(leases=leases)

    def recover(self) -> None:
        """Drop this thread's connection after an error, unless it is inside a caller's transaction."""
        if not connection.in_atomic_block:
            connection.close()

    def release(self) -> None:
        """Give a pooled connection back before this thread waits; a SQLite one costs nothing to keep."""
        if connection.vendor == "postgresql" and not connection.in_atomic_block:
            self._step.rest()
            connection.close()

    def close(self) -> None:
        """The end of a process: what it posted is waited for, a bounded time, and its rows say so."""
        self.transport.close()
        self.release()

    def stopped(self, *, lease: Lease) -> None:
        self._leases.stopped(lease=lease)

    def claim(self, job_id: str, *, owner: str, ttl_s: float, serves: Serves, tenant: str | None = None) -> Lease | str:
        """Claim one job by its id: a lease, or the reason of the refusal (states.Refusal)."""
        return retry_deadlock(lambda: self._claim(job_id, owner, ttl_s, serves, tenant))

    def _claim(self, job_id: str, owner: str, ttl_s: float, serves: Serves, tenant: str | None) -> Lease | str:
        with self._store.transaction() as unit:
            found = WorkItem.objects.filter(job_id=job_id).values_list("pk", "session_id").first()
            if found is None:
                return Refusal.UNKNOWN
            pk, session_pk = found
            session = lock_sessions([session_pk]).get(session_pk)
            if not unit.deferred:
                self.transport.rows([pk])
            item, now = WorkItem.objects.filter(pk=pk).first(), store_now()
            if session is None or item is None:
                return Refusal.UNKNOWN  # retention took it a moment ago
            if tenant is not None and tenant != item.tenant:
                return Refusal.TENANT_MISMATCH
            candidate = Candidate(
                item_id=pk,
                job_id=job_id,
                tenant=item.tenant,
                status=item.status,
                session_seq=item.session_seq,
                head_seq=session.head_seq,
                desired=session.desired,
                kind=item.kind,
                agent_name=item.agent_name,
                due_at=item.due_at,
                deadline=item.deadline,
            )
            gates, limited = read_holds(Serves(agents=(item.agent_name,), kinds=()))
            if (reason := refusal(candidate, serves=serves, gates=gates, now=now)) is not None:
                return reason
            room = Room(agents=[item.agent_name], tenant=item.tenant) if limited else None
            if room is not None and room.is_full:
                return Refusal.LIMITED
            unit.touched.add(pk)
            began = now if room is None else store_now()
            (lease,) = self._step.lease([pk], owner=owner, ttl_s=ttl_s, now=began, unit=unit)
            if room is not None:
                room.take([lease], began)
                room.save()
            return lease

    def depth(self) -> int:
        """The queue's depth, for a thread that only looks now and then. Raises QueueUnavailable."""
        try:
            return self.transport.depth()
        finally:
            self.release()

    # -- repair --------------------------------------------------------------------------------------------------------
    def open_queue(self) -> None:
        """Fill the queue from the state if it is fresh."""
        if self.transport.rebuilding:
            with self._store.transaction():
                pass

    def repair(self, *, rest: float = 0.0) -> int:
        """Make every queue row say what the state says; answers how many did not. `rest`: see strays."""
        self.open_queue()
        found = strays(self.transport, rest=rest).all
        self.transitions.resync(found)
        return len(found)

    def republish(self) -> int:
        """Send the envelopes of claimable turns that have none; answers how many. See Publication.republish."""
        return self._publication.republish() if self._publication is not None else 0

    def astray(self, *, limit: int | None = None) -> dict[str, set[int]]:
        """{label: item ids} of items and queue rows that do not agree, among the first `limit` of each."""
        findings = {}
        for label, ids in strays(self.transport, limit=limit).labelled().items():
            if not ids:
                continue
            # what was seen without a lock may have been on its way: look again while nobody moves it
            with self.transport.transaction():
                astray = still_astray(self.transport, ids)
            if astray:
                findings[label] = astray
        if self._publication is not None and (unsent := self._publication.overdue(limit=limit)):
            findings["envelopes_unsent"] = unsent
        return findings


def void(_: object) -> None:
    """Drop an answer."""
