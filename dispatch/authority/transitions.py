"""The cold transitions, one code for both databases: cancel, expire, rescue, due, wake, control, retry, dependents.

Each takes sessions by (tenant, session_id) in a statement of its own, then queue rows, then items; moves each item by a
guarded UPDATE whose row count is looked at; and leaves the queue rows to the projection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from dispatch import states
from dispatch.authority import goals, questions
from dispatch.authority.statements import Statements, to_db
from dispatch.authority.store import Store, Unit, lock_sessions, retry_deadlock
from dispatch.clock import store_now
from dispatch.errors import NoQuestion, NotRetryable, QueueFull
from dispatch.models import Outcome, Question, WebhookWatch, WorkItem, WorkItemDependency, WorkItemEvent
from dispatch.parts import parts
from dispatch.states import ErrorCode
from sessions_app.models import Session, Turn

BATCH = 500
WINDOW = 2_000  # rows looked at in one query
_STEP = Statements("step.sql")
_SQL = Statements("transitions.sql")
_LOST = "the worker stopped renewing its lease"


Noted = Callable[[Mapping[int, str]], None]


def unnoted(said: Mapping[int, str]) -> None:
    """What a transition writes in its own commit of what it did, {key: outcome}: nothing."""


class Transitions:
    """Everything that moves an item outside of a step."""

    def __init__(self, store: Store, *, max_depth: int) -> None:
        self._store = store
        self._max_depth = max_depth

    # -- shared pieces -------------------------------------------------------------------------------------------------
    def _open(self, item_ids: Iterable[int], unit: Unit) -> tuple[dict[int, Session], list[WorkItem], datetime]:
        """Lock the sessions, then the queue rows, then read the items as they are under those locks."""
        ids = sorted(set(item_ids))
        pks = set(WorkItem.objects.filter(pk__in=ids).values_list("session_id", flat=True))
        sessions = lock_sessions(pks)
        if not unit.deferred:
            self._store.transport.rows(ids)
        items = list(WorkItem.objects.filter(pk__in=ids).order_by("pk"))
        unit.touched.update(ids)
        return sessions, items, store_now()

    def _finish(
        self, item: WorkItem, session: Session, now: datetime, *, status: str, code: str, message: str, event: str = ""
    ) -> bool:
        """End an item by a guarded update; False when it has moved on. Writes outcome, event and the counter."""
        was = item.status
        moved = WorkItem.objects.filter(pk=item.pk, status=was, epoch=item.epoch, owner=item.owner).update(
            status=status,
            finished_at=now,
            owner=None,
            lease_expires_at=None,
            cancel_code=code if status == states.CANCELLED else item.cancel_code,
            cancel_reason=message[:500] if status == states.CANCELLED else item.cancel_reason,
            stopped_at=Coalesce(F("stopped_at"), now) if was not in states.LIVE else F("stopped_at"),
        )
        if not moved:
            return False
        worker = item.owner or ""
        item.status, item.owner, item.finished_at = status, None, now
        Outcome.objects.create(
            work_item=item, epoch=item.epoch, status=status, error_code=code, error_message=message, created_at=now
        )
        self._event(item, now, event or status, was, status, f"{code}: {message}" if message else code, worker)
        if was == states.SUSPENDED:
            Question.objects.still_open().filter(work_item=item).update(withdrawn_at=now)
        _STEP.run("count_outcome", (states.counter_outcome(status, code), 1))
        self._number_turn(item, session, was, now)
        return True

    def _finish_queued(
        self, items: Sequence[WorkItem], sessions: Mapping[int, Session], now: datetime, *, code: str, message: str
    ) -> list[WorkItem]:
        """Cancel items that hold no lease, all in a few statements; answers those that had not moved on."""
        seen = {item.pk: (item.status, item.epoch) for item in items}
        rows = WorkItem.objects.filter(pk__in=list(seen)).order_by("pk").select_for_update(no_key=True)
        still = {pk for pk, *row in rows.values_list("pk", "status", "epoch") if tuple(row) == seen[pk]}
        if not still:
            return []
        WorkItem.objects.filter(pk__in=sorted(still)).update(
            status=states.CANCELLED,
            finished_at=now,
            cancel_requested_at=Coalesce(F("cancel_requested_at"), now),
            cancel_code=code,
            cancel_reason=message[:500],
            stopped_at=Coalesce(F("stopped_at"), now),
        )
        done = [item for item in items if item.pk in still]
        Outcome.objects.bulk_create(
            [
                Outcome(
                    work_item=item,
                    epoch=item.epoch,
                    status=states.CANCELLED,
                    error_code=code,
                    error_message=message,
                    created_at=now,
                )
                for item in done
            ]
        )
        reason = f"{code}: {message}" if message else code
        WorkItemEvent.objects.bulk_create(
            [_event(item, now, states.CANCELLED, item.status, states.CANCELLED, reason) for item in done]
        )
        Question.objects.still_open().filter(work_item__in=still).update(withdrawn_at=now)
        _STEP.run("count_outcome", (states.counter_outcome(states.CANCELLED, code), len(done)))
        self._number_heads([sessions[i.session_id] for i in done if i.session_seq == sessions[i.session_id].head_seq])
        for item in done:
            item.status, item.finished_at = states.CANCELLED, now
        return done

    @staticmethod
    def _number_heads(sessions: Sequence[Session]) -> None:
        """The heads of these ended without a lease: those that had run before keep their number."""
        ran = Turn.objects.filter(session__in=sessions, turn_number=F("session__turn_number") + 1)
        pks = set(ran.values_list("session_id", flat=True))
        for session in sessions:
            session.turn_number += session.pk in pks
        if pks:
            Session.objects.filter(pk__in=pks).update(turn_number=F("turn_number") + 1)

    @staticmethod
    def _number_turn(item: WorkItem, session: Session, was: str, now: datetime) -> None:
        """What has run is a turn of the session: it keeps its number, and the next one gets the next."""
        if was in states.LIVE:
            Turn.objects.create(
                session=session,
                turn_number=session.turn_number + 1,
                epoch=item.epoch,
                work_item_id=item.pk,
                status=item.status,
                attempt=item.attempt,
                started_at=item.started_at,
                finished_at=now,
            )
        ran = was in states.LIVE or Turn.objects.filter(session=session, turn_number=session.turn_number + 1).exists()
        if ran and item.session_seq == session.head_seq:
            session.turn_number += 1
            Session.objects.filter(pk=session.pk).update(turn_number=session.turn_number)

    @staticmethod
    def _event(
        item: WorkItem, now: datetime, event: str, was: str, to: str, reason: str = "", worker: str = ""
    ) -> None:
        _event(item, now, event, was, to, reason, worker).save(force_insert=True)

    def _promote(
        self, sessions: Iterable[Session], now: datetime, unit: Unit, ended: Mapping[int, str] | None = None
    ) -> None:
        """Find each session's head again and write what is true of it now. `ended`: last final status by session."""
        locked = list({session.pk: session for session in sessions}.values())
        if not locked:
            return
        heads, rows = _heads(locked), []
        for session in locked:
            head = heads.get(session.pk)
            asks = head is not None and head.status == states.SUSPENDED and head.suspended_for == "input"
            last = (ended or {}).get(session.pk)
            before = session.status
            if last in (states.FAILED, states.DEAD_LETTER):
                before = "failed"
            elif last is not None and before != "failed":
                before = "idle"
            running = head is not None and head.status in states.LIVE
            stops = session.desired != "run" and not running
            if session.desired == "kill" and not running:
                session.desired = "run"
                before = "cancelled"
            session.status = states.session_after(
                before, desired=session.desired, head_status=head.status if head else None, asks=asks
            )
            session.head_seq = head.session_seq if head else None
            rows.append((session.pk, session.head_seq, session.status, session.desired, int(stops)))
            if head is not None:
                unit.touched.add(head.pk)
        for part in parts(rows, BATCH):
            _SQL.batch("promote", part, after=[to_db(now), to_db(now)])

    def _batches(self, ids: Sequence[int], work: Callable[[list[int]], None]) -> None:
        for part in parts(ids, BATCH):
            retry_deadlock(lambda part=part: work(list(part)))  # type: ignore[misc]

    # -- cancel, expire ------------------------------------------------------------------------------------------------
    def cancel(self, item_ids: Sequence[int], *, code: str, reason: str = "", noted: Noted = unnoted) -> dict[int, str]:
        """Cancel: {item id: done | requested | too_late}. Queued and suspended turns end now, running ones are told.

        Their unfinished children go with them, each layer in commits of its own after that of its parents; what a crash
        leaves of them the tick cancels.
        """
        answer: dict[int, str] = {}
        self._batches(sorted(set(item_ids)), lambda part: answer.update(self._cancel(part, code, reason, noted)))
        self._cancel_children({pk for pk, how in answer.items() if how != "too_late"})
        return answer

    def _cancel_children(self, parents: Collection[int]) -> int:
        """Cancel the unfinished children of these, and theirs; answers how many."""
        open_ones = WorkItem.objects.filter(finished_at__isnull=True, cancel_requested_at__isnull=True)
        children: list[int] = []
        for part in parts(sorted(parents), BATCH):
            children += open_ones.filter(parent_item_id__in=part).values_list("pk", flat=True)
        if not children:
            return 0
        how = self.cancel(children, code=ErrorCode.CANCELLED, reason="its parent was cancelled")
        return sum(one != "too_late" for one in how.values())

    def cancel_orphans(self, limit: int = BATCH) -> int:
        """The tick behind it: children whose parent has ended as cancelled, whoever ended it, or whoever came late."""
        parents = WorkItem.objects.filter(pk=OuterRef("parent_item_id"), status=states.CANCELLED)
        left = WorkItem.objects.filter(
            Exists(parents), parent_item_id__isnull=False, finished_at__isnull=True, cancel_requested_at__isnull=True
        )
        found = left.order_by("pk").values_list("parent_item_id", flat=True)[:limit]
        return self._cancel_children({pk for pk in found if pk is not None})

    def _cancel(self, item_ids: list[int], code: str, reason: str, noted: Noted) -> dict[int, str]:
        with self._store.transaction() as unit:
            sessions, items, now = self._open(item_ids, unit)
            answer: dict[int, str] = {}
            ended: dict[int, str] = {}
            queued = [item for item in items if item.status in states.UNFINISHED - states.LIVE]
            done = self._finish_queued(queued, sessions, now, code=code, message=reason) if queued else []
            for item in items:
                if item.status in states.LIVE:
                    answer[item.pk] = self._ask_to_stop(item, now, code, reason)
                else:  # it had ended, or moved on between our look and our write (Postgres)
                    answer[item.pk] = "too_late"
            for item in done:
                answer[item.pk] = "done"
                ended[item.session_id] = states.CANCELLED
                unit.ended.add(item.pk)
            if ended:
                self._promote([sessions[pk] for pk in ended], now, unit, ended)
            noted(answer)
            return answer

    def _ask_to_stop(self, item: WorkItem, now: datetime, code: str, reason: str) -> str:
        asked = WorkItem.objects.filter(pk=item.pk, status=item.status, epoch=item.epoch).update(
            cancel_requested_at=Coalesce(F("cancel_requested_at"), now),
            cancel_code=item.cancel_code or code,
            cancel_reason=item.cancel_reason or reason[:500],
        )
        if not asked:  # it ended between our look and our write (Postgres)
            return "too_late"
        if item.cancel_requested_at is None:
            self._event(item, now, "cancel_requested", item.status, item.status, f"{code}: {reason}")
        return "requested"

    def expire(self, limit: int = BATCH) -> int:
        """Cancel what has not started by its deadline."""
        late = self._store.transport.expired(now=store_now().timestamp(), limit=limit)
        if not late:
            return 0
        return sum(
            how == "done"
            for how in self.cancel(late, code=ErrorCode.EXPIRED, reason="the deadline passed before it ran").values()
        )

    # -- lost leases ---------------------------------------------------------------------------------------------------
    def rescue(self, limit: int = BATCH) -> int:
        """Take back expired leases. The next worker gets the turn at once: a lost lease waits for no backoff."""
        lost = self._lapsed(store_now())[:limit]
        if not lost:
            return 0
        return retry_deadlock(lambda: self._rescue(list(lost)))

    @staticmethod
    def _lapsed(now: datetime) -> list[int]:
        live = WorkItem.objects.filter(status__in=sorted(states.LIVE))
        lapsed = live.filter(Q(lease_expires_at__lt=now) | Q(lease_expires_at__isnull=True))
        return list(lapsed.values_list("pk", flat=True)[:BATCH])

    def rescue_item(self, item_id: int) -> bool:
        """Rescue one item if its lease has lapsed."""
        return item_id in self._lapsed(store_now()) and bool(retry_deadlock(lambda: self._rescue([item_id])))

    def _rescue(self, item_ids: list[int]) -> int:
        with self._store.transaction() as unit:
            sessions, items, now = self._open(item_ids, unit)
            count, ended = 0, {}
            touched: list[Session] = []
            for item in items:
                lapsed = item.lease_expires_at is None or item.lease_expires_at < now
                if item.status not in states.LIVE or not lapsed:
                    continue
                session = sessions[item.session_id]
                final, code, message = self._verdict(item)
                if final:
                    moved = self._finish(item, session, now, status=final, code=code, message=message)
                    ended[session.pk] = final
                    unit.ended.add(item.pk)
                else:
                    moved = self._back(item, session, now)
                if moved:
                    count += 1
                    touched.append(session)
            self._promote(touched, now, unit, ended)
            return count

    @staticmethod
    def _verdict(item: WorkItem) -> tuple[str, str, str]:
        """(final status, code, message) of an item whose worker was lost; ("", "", "") when it runs again."""
        if item.cancel_requested_at is not None:
            return states.CANCELLED, item.cancel_code or ErrorCode.CANCELLED, item.cancel_reason or _LOST
        if item.on_worker_lost == "fail":
            return states.FAILED, ErrorCode.WORKER_LOST, f"worker lost: {_LOST}"
        if item.attempt >= item.max_attempts:
            return states.DEAD_LETTER, ErrorCode.WORKER_LOST, f"worker lost: {_LOST}"
        return "", "", ""

    def _back(self, item: WorkItem, session: Session, now: datetime) -> bool:
        was, worker = item.status, item.owner or ""
        moved = WorkItem.objects.filter(pk=item.pk, status=was, epoch=item.epoch, owner=item.owner).update(
            status=states.READY, owner=None, lease_expires_at=None, due_at=None
        )
        if moved:
            Turn.objects.create(
                session=session,
                turn_number=session.turn_number + 1,
                epoch=item.epoch,
                work_item_id=item.pk,
                status="worker_lost",
                attempt=item.attempt,
                started_at=item.started_at,
                finished_at=now,
            )
            self._event(item, now, "rescued", was, states.READY, f"worker_lost: {_LOST}", worker)
        return bool(moved)

    # -- time ----------------------------------------------------------------------------------------------------------
    def due(self, limit: int = BATCH) -> int:
        """Make heads claimable whose time has come."""
        ids = self._store.transport.due(now=store_now().timestamp(), limit=limit)
        if ids:
            self.resync(ids)
        return len(ids)

    def resync(self, item_ids: Iterable[int]) -> None:
        """Make queue rows follow the state again, and heads too: the repair of whatever a crash left."""

        def work(part: list[int]) -> None:
            with self._store.transaction() as unit:
                sessions, _, now = self._open(part, unit)
                stale = [s for s in sessions.values() if s.head_seq != _true_head(s)]
                self._promote(stale, now, unit)

        self._batches(sorted(set(item_ids)), work)

    # -- suspended turns -----------------------------------------------------------------------------------------------
    def wake(self, item_ids: Sequence[int], *, reason: str) -> list[int]:
        """Make suspended turns ready again: no attempt used, the same turn goes on."""
        woken: list[int] = []
        with self._store.transaction() as unit:
            sessions, items, now = self._open(item_ids, unit)
            for item in items:
                moved = WorkItem.objects.filter(pk=item.pk, status=states.SUSPENDED, epoch=item.epoch).update(
                    status=states.READY, due_at=None
                )
                if moved:
                    self._event(item, now, "resumed", states.SUSPENDED, states.READY, reason)
                    woken.append(item.pk)
            self._promote([sessions[i.session_id] for i in items if i.pk in woken], now, unit)
        return woken

    def reply(self, question_id: int, *, answer: str, by: str, noted: Noted = unnoted) -> None:
        """Answer an open question and let its turn go on. Raises NoQuestion when somebody was quicker."""
        with self._store.transaction() as unit:
            question = Question.objects.get(pk=question_id)
            self._open([question.work_item_id], unit)
            answered = (
                Question.objects.still_open()
                .filter(pk=question_id)
                .update(answered_at=store_now(), answer=answer, answered_by=by)
            )
            if not answered:
                raise NoQuestion
            if not self.wake([question.work_item_id], reason=f"input: {by}"):
                raise NoQuestion
            noted({question.work_item_id: "applied"})

    def questions(self) -> int:
        """Answer open questions whose time is over by their default, and remind of others; answers how many."""
        return sum(self._question_due(question) for question in questions.due())

    def _question_due(self, question: Question) -> bool:
        """False when a person, or another process, was quicker."""
        if question.answer_by is None or question.answer_by > store_now():
            return self._remind(question)
        try:
            retry_deadlock(lambda: self.reply(question.pk, answer=question.default_answer or "", by=questions.DEFAULT))
        except NoQuestion:
            return False
        return True

    def _remind(self, question: Question) -> bool:
        with self._store.transaction() as unit:
            _, items, now = self._open([question.work_item_id], unit)
            if not items or not questions.take_reminder(question, now):
                return False
            self._event(items[0], now, states.REMINDER, states.SUSPENDED, states.SUSPENDED, "nobody has answered")
            return True

    # -- dependents ----------------------------------------------------------------------------------------------------
    def follow_up(self, ended: set[int]) -> int:
        """Release or cancel what waited for these items, transitively; a transaction of its own for each layer."""
        moved, layer = 0, set(ended)
        while layer:
            waiting = list(
                WorkItemDependency.objects.filter(
                    parent_id__in=layer, work_item__status__in=[states.SUBMITTED, states.SUSPENDED]
                ).values_list("work_item_id", flat=True)
            )
            if not waiting:
                break
            layer = set()

            def work(part: list[int], layer: set[int] = layer) -> None:
                nonlocal moved
                moved += self._release(part, layer)

            self._batches(sorted(set(waiting)), work)
        return moved

    def _release(self, item_ids: list[int], cancelled: set[int]) -> int:
        moved = 0
        with self._store.transaction() as unit:
            sessions, items, now = self._open(item_ids, unit)
            parents: dict[int, list[tuple[str, str, str]]] = {}
            rows = WorkItemDependency.objects.filter(work_item_id__in=item_ids)
            for pk, kind, job, status in rows.values_list("work_item_id", "kind", "parent__job_id", "parent__status"):
                parents.setdefault(pk, []).append((kind, job, status))
            ended: dict[int, str] = {}
            for item in items:
                # a child that was a dependency before has that one row; dependencies of what has run have succeeded
                kinds = ("depends",) if item.status == states.SUBMITTED else ("depends", "child")
                mine = [(job, status) for kind, job, status in parents.get(item.pk, []) if kind in kinds]
                if item.status == states.SUSPENDED and item.suspended_for == "children":
                    if all(status in states.TERMINAL for _, status in mine):
                        moved += self._move(item, states.SUSPENDED, now, "resumed", "children")
                        ended.setdefault(item.session_id, "")
                elif item.status == states.SUBMITTED:
                    bad = [(job, s) for job, s in mine if s in states.TERMINAL and s != states.SUCCEEDED]
                    if bad or not mine:
                        message = f"dependency {bad[0][0]} ended as {bad[0][1]}" if bad else "its dependency is gone"
                        session = sessions[item.session_id]
                        if self._finish(
                            item, session, now, status=states.CANCELLED, code=ErrorCode.DEPENDENCY, message=message
                        ):
                            moved += 1
                            cancelled.add(item.pk)
                            ended[item.session_id] = states.CANCELLED
                    elif all(status == states.SUCCEEDED for _, status in mine):
                        moved += self._move(item, states.SUBMITTED, now, "released", "dependencies succeeded")
            self._promote(
                [sessions[pk] for pk in ended], now, unit, {pk: status for pk, status in ended.items() if status}
            )
        return moved

    def _move(self, item: WorkItem, was: str, now: datetime, event: str, reason: str) -> int:
        moved = WorkItem.objects.filter(pk=item.pk, status=was, epoch=item.epoch).update(status=states.READY)
        if moved:
            item.status = states.READY
            self._event(item, now, event, was, states.READY, reason)
        return moved

    def release_waiting(self, limit: int = BATCH) -> int:
        """The tick behind `follow_up`: find what need not wait any more, or waits in vain, oldest first.

        It goes over what waits, a window at a time: what ended long ago costs it nothing.
        """
        parents = WorkItemDependency.objects.filter(work_item=OuterRef("pk"))
        ended_badly = Exists(parents.filter(parent__status__in=sorted(states.RETRYABLE), kind="depends"))
        over = ~Exists(parents.filter(parent__finished_at__isnull=True))  # also when what it waited for is gone
        due = Q(ended_badly | over, status=states.SUBMITTED) | Q(over, status=states.SUSPENDED)
        waits = Q(status=states.SUBMITTED) | Q(status=states.SUSPENDED, suspended_for="children")
        waiting = WorkItem.objects.filter(waits, finished_at__isnull=True).order_by("pk").values_list("pk", flat=True)
        ids: list[int] = []
        after = 0
        while len(ids) < limit and (window := list(waiting.filter(pk__gt=after)[:WINDOW])):
            ids += WorkItem.objects.filter(due, pk__in=window).order_by("pk").values_list("pk", flat=True)
            after = window[-1]
        moved, cancelled = 0, set[int]()
        if ids:
            moved = retry_deadlock(lambda: self._release(ids[:limit], cancelled)) + self.follow_up(cancelled)
        return moved + self.cancel_orphans(limit)

    # -- the session's wish --------------------------------------------------------------------------------------------
    def pause(self, session_pks: Sequence[int], *, by: str, reason: str, noted: Noted = unnoted) -> dict[int, str]:
        return self._control(session_pks, "pause", by, reason, noted)

    def resume(self, session_pks: Sequence[int], *, by: str, reason: str, noted: Noted = unnoted) -> dict[int, str]:
        return self._control(session_pks, "run", by, reason, noted)

    def _control(self, session_pks: Sequence[int], desired: str, by: str, reason: str, noted: Noted) -> dict[int, str]:
        """{session pk: applied | requested | already}; a running turn ends by itself, nothing new starts."""
        answer: dict[int, str] = {}

        def work(part: list[int]) -> None:
            said: dict[int, str] = {}
            with self._store.transaction() as unit:
                sessions, now = lock_sessions(part), store_now()
                for session in sessions.values():
                    if session.desired == desired:
                        said[session.pk] = "already"
                        continue
                    session.desired = desired
                    Session.objects.filter(pk=session.pk).update(
                        desired=desired,
                        desired_by=by[:200],
                        desired_reason=reason[:500],
                        desired_at=now,
                        seen_at=None,
                        seen_by=None,
                        stopped_at=None,
                    )
                    self._lock_head(session, unit)
                    self._promote([session], now, unit)
                    said[session.pk] = "requested" if session.status == "pause_requested" else "applied"
                noted(said)
            answer.update(said)

        self._batches(sorted(set(session_pks)), work)
        return answer

    def _lock_head(self, session: Session, unit: Unit) -> None:
        if session.head_seq is None or unit.deferred:
            return
        head = WorkItem.objects.filter(session=session, session_seq=session.head_seq).values_list("pk", flat=True)
        self._store.transport.rows(list(head))

    def kill(self, session_pks: Sequence[int], *, by: str, reason: str, noted: Noted = unnoted) -> dict[int, str]:
        """Cancel what is queued and running up to now, in batches; the session takes new turns afterwards.

        {session pk: applied | requested | already}. The place up to which it reaches is written first: a kill that
        was interrupted is finished by the tick.
        """
        answer: dict[int, str] = {}
        self._batches(sorted(set(session_pks)), lambda part: answer.update(self._kill(part, by, reason, noted)))
        return answer

    def _kill(self, session_pks: list[int], by: str, reason: str, noted: Noted) -> dict[int, str]:
        with self._store.transaction():
            sessions = lock_sessions(session_pks)
            unfinished = WorkItem.objects.filter(session__in=sessions, status__in=sorted(states.UNFINISHED))
            running: dict[int, bool] = {}
            for pk, status in unfinished.values_list("session_id", "status"):
                running[pk] = running.get(pk, False) or status in states.LIVE
            now = store_now()
            Session.objects.filter(pk__in=list(running)).update(
                # a pause outlives the kill
                desired=Case(When(desired="run", then=Value("kill")), default=F("desired")),
                desired_by=by[:200],
                desired_reason=reason[:500],
                desired_at=now,
                seen_at=None,
                seen_by=None,
                stopped_at=None,
                kill_through_seq=F("last_seq"),
                status=Case(When(desired="run", then=Value("kill_requested")), default=F("status")),
                updated_at=now,
            )
            words = {True: "requested", False: "applied", None: "already"}
            said = {pk: words[running.get(pk)] for pk in sessions}
            noted(said)
        self._finish_kills(list(running))
        return said

    @staticmethod
    def _within_kill(session_pks: Sequence[int]) -> QuerySet[WorkItem]:
        return WorkItem.objects.filter(
            session__in=session_pks,
            status__in=sorted(states.UNFINISHED),
            session_seq__lte=F("session__kill_through_seq"),
        )

    def _finish_kills(self, session_pks: Sequence[int]) -> int:
        """Cancel what kills reach; answers of how many sessions nothing of it is left running."""
        by_reason: dict[str, list[int]] = {}
        for pk, why in self._within_kill(session_pks).values_list("pk", "session__desired_reason"):
            by_reason.setdefault(why, []).append(pk)
        for why, items in by_reason.items():
            self.cancel(items, code=ErrorCode.CANCELLED, reason=f"killed: {why}")
        with self._store.transaction() as unit:
            sessions = lock_sessions(session_pks)
            left = set(self._within_kill(session_pks).values_list("session_id", flat=True))
            over = [pk for pk in sessions if pk not in left]
            Session.objects.filter(pk__in=over).update(kill_through_seq=None)
            self._promote(sessions.values(), store_now(), unit)
        return len(over)

    def finish_kills(self, limit: int = BATCH) -> int:
        """The tick behind `kill`."""
        waiting = Session.objects.filter(kill_through_seq__isnull=False).order_by("pk").values_list("pk", flat=True)
        pks = list(waiting[:limit])
        return retry_deadlock(lambda: self._finish_kills(pks)) if pks else 0

    # -- manual retry --------------------------------------------------------------------------------------------------
    def retry(self, item_id: int, *, deadline_s: float | None = None, noted: Noted = unnoted) -> None:
        """Make the same job ready again, at the end of its session. Raises NotRetryable, QueueFull."""
        with self._store.transaction() as unit:
            room = self._store.transport.room(self._max_depth)
            sessions, items, now = self._open([item_id], unit)
            if not items:  # retention took it a moment ago
                raise NotRetryable("the job is no more")
            (item,) = items
            if item.status not in states.RETRYABLE:
                raise NotRetryable
            if room < 1:
                raise QueueFull
            parents = WorkItemDependency.objects.filter(work_item=item, kind="depends")
            locked = list(
                WorkItem.objects.select_for_update()
                .filter(pk__in=list(parents.values_list("parent_id", flat=True)))
                .order_by("pk")
                .values_list("status", flat=True)
            )
            if any(status in states.TERMINAL and status != states.SUCCEEDED for status in locked):
                raise NotRetryable("a dependency of it did not succeed")
            status = states.SUBMITTED if any(s != states.SUCCEEDED for s in locked) else states.READY
            session = sessions[item.session_id]
            session.last_seq += 1
            Session.objects.filter(pk=session.pk).update(last_seq=session.last_seq)
            moved = WorkItem.objects.filter(pk=item.pk, status=item.status, epoch=item.epoch).update(
                status=status,
                attempt=0,
                epoch=F("epoch") + 1,
                session_seq=session.last_seq,
                finished_at=None,
                started_at=None,
                stopped_at=None,
                cancel_requested_at=None,
                cancel_seen_at=None,
                cancel_code="",
                cancel_reason="",
                suspended_for="",
                run_at=None,
                due_at=None,
                deadline=now + timedelta(seconds=deadline_s) if deadline_s else None,
            )
            if not moved:
                raise NotRetryable
            if item.goal is not None:
                goals.reopen(item)
            was, item.attempt, item.epoch = item.status, 0, item.epoch + 1
            self._event(item, now, "reopened", was, status)
            WebhookWatch.objects.filter(work_item=item).update(done_at=None, version=F("version") + 1)
            session.status = "active" if session.status in ("idle", "failed", "cancelled") else session.status
            self._promote([session], now, unit)
            noted({item.pk: "applied"})


def _true_head(session: Session) -> int | None:
    unfinished = WorkItem.objects.filter(session=session, status__in=sorted(states.UNFINISHED))
    return unfinished.order_by("session_seq").values_list("session_seq", flat=True).first()


def _heads(sessions: Sequence[Session]) -> dict[int, WorkItem]:
    """{session key: its first unfinished turn}, of those that have one."""
    unfinished = WorkItem.objects.filter(session=OuterRef("pk"), status__in=sorted(states.UNFINISHED))
    first = Session.objects.filter(pk__in=[session.pk for session in sessions]).annotate(
        head=Subquery(unfinished.order_by("session_seq").values("pk")[:1])
    )
    heads = WorkItem.objects.in_bulk([pk for pk in first.values_list("head", flat=True) if pk is not None])
    return {item.session_id: item for item in heads.values()}


def _event(
    item: WorkItem, now: datetime, event: str, was: str, to: str, reason: str = "", worker: str = ""
) -> WorkItemEvent:
    return WorkItemEvent(
        work_item=item,
        at=now,
        event=event,
        from_status=was,
        to_status=to,
        attempt=item.attempt,
        worker=worker,
        epoch=item.epoch,
        reason=reason[:1000],
    )
