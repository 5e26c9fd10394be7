"""The leader's work by the clock: each due time becomes one job, in the transaction that moves its schedule on.

Nothing is dispatched that is not booked, and nothing is booked that is not dispatched: a process that dies in between
leaves neither. The row's lock lets one of two leaders have a due time; the leader's term, held for the transaction,
stops one that has been followed; the job's id, which derives from the due time, makes a repeat find the same job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import DatabaseError, transaction
from django.db.models import Value
from django.db.models.functions import Coalesce

from dispatch import wiring
from dispatch.authority.store import retry_deadlock
from dispatch.clock import store_now
from dispatch.errors import DispatchError, QueueFull, QueueUnavailable, StoreUnavailable
from dispatch.maintenance import schedule_runs
from dispatch.models import Schedule
from dispatch.schedules.catch_up import Choice, Due, Timetable, choose
from dispatch.schedules.timetables import timetable_of

log = logging.getLogger("dispatch.schedules")

GRACE_TICKS = 4  # a dead leader is followed within three, and looks within one more
ROUND_SCHEDULES = 100
ROUND_S = 1.0  # the leader has its beat to keep
BOOKED = ("due_at", "next_run_at", "refused_since", "last_error", "last_run_at", "last_job_id")


class Materializer:
    """Dispatches what is due. `leads` says, inside a transaction, whether this process leads until its end."""

    def __init__(self, *, leads: Callable[[], bool], tick_s: float, clock: Callable[[], datetime] = store_now) -> None:
        self._leads = leads
        self._tick = timedelta(seconds=tick_s)
        self._clock = clock

    def run_once(self) -> int:
        """One round over the schedules that are due, the longest due first; answers how many due times it settled."""
        due = Schedule.objects.filter(next_run_at__lte=self._clock()).order_by("next_run_at", "pk")
        pks = list(due.values_list("pk", flat=True)[:ROUND_SCHEDULES])
        if pks:
            schedule_runs.open_queue()
        settled, end = 0, time.monotonic() + ROUND_S
        for pk in pks:
            while self._advance(pk):
                settled += 1
                if time.monotonic() > end:
                    return settled
        return settled

    def _advance(self, pk: int) -> bool:
        """Settle the schedule's next due time; False when there is none, or it was refused."""
        try:
            return retry_deadlock(lambda: self._settle(pk))
        except (DatabaseError, StoreUnavailable):
            raise
        except Exception as error:  # what is wrong with one schedule must not stop the others
            log.exception("schedule failed", extra={"schedule_id": pk})
            self._put_off(pk, error)
        return False

    def _settle(self, pk: int) -> bool:
        with transaction.atomic():
            schedule = self._take(pk) if self._leads() else None
            if schedule is None or schedule.due_at is None:
                return False
            now = self._clock()
            timetable = timetable_of(schedule)
            choice = self._choose(schedule, schedule.due_at, timetable, now)
            if choice.missed:
                log.warning("due times missed", extra={"schedule_id": pk, "count": choice.missed})
                schedule_runs.note(schedule, "missed", due=schedule.due_at, at=now, count=choice.missed)
            if choice.run is not None:
                refusal = self._run(schedule, choice.run, now)
                if refusal is not None:
                    self._keep(schedule, choice.run, now, refusal)
                    return False
            following = timetable.after(choice.through)
            schedule.due_at, schedule.next_run_at = following.at, following.run_at
            schedule.refused_since, schedule.last_error = None, ""
            schedule.save(update_fields=BOOKED)
            return True

    def _take(self, pk: int) -> Schedule | None:
        """The schedule, locked, if it is due: of two leaders the second finds that it has moved on."""
        return Schedule.objects.select_for_update(no_key=True).filter(pk=pk, next_run_at__lte=self._clock()).first()

    def _choose(self, schedule: Schedule, due_at: datetime, timetable: Timetable, now: datetime) -> Choice:
        if schedule.refused_since is not None:  # it was chosen once, and is left out by no policy
            return Choice(run=Due(at=due_at, run_at=due_at), missed=0, through=due_at)
        pending, before = timetable.come(since=due_at, now=now)
        if not pending:  # the zone's rules have changed: look again for the time that they name now
            return Choice(run=None, missed=0, through=due_at - timedelta(microseconds=1))
        choice = choose(pending, policy=schedule.catch_up, now=now, grace=GRACE_TICKS * self._tick)
        return replace(choice, missed=choice.missed + before)

    def _run(self, schedule: Schedule, due: Due, now: datetime) -> DispatchError | None:
        """Dispatch one due time, as far as the schedule's overlap lets it; answers a refusal of the queue."""
        outcome, job_id = self._overlapping(schedule)
        if not outcome:
            try:
                with transaction.atomic():
                    job_id = schedule_runs.due_job_id(schedule, due.at)
                    schedule_runs.submit(schedule, job_id=job_id, due=due.at)
            except (QueueFull, QueueUnavailable) as refusal:
                return refusal
        late_s = max(0.0, (now - due.run_at).total_seconds())
        schedule_runs.note(schedule, outcome or "queued", due=due.at, at=now, job_id=job_id, late_s=late_s)
        if job_id:
            schedule.last_run_at, schedule.last_job_id = now, job_id
        return None

    @staticmethod
    def _overlapping(schedule: Schedule) -> tuple[str, str]:
        """What an unfinished earlier run makes of this one: (outcome, job id), empty when it runs."""
        if schedule.overlap == "enqueue":
            return "", ""
        earlier = schedule_runs.unfinished(schedule)
        if schedule.overlap == "skip":
            return ("skipped", "") if earlier else ("", "")
        for item in earlier:
            if wiring.authority().replace_unstarted(item.pk, task=schedule.task, payload=schedule.payload):
                return "coalesced", item.job_id
        return "", ""

    def _keep(self, schedule: Schedule, due: Due, now: datetime, refusal: DispatchError) -> None:
        """Try this very due time again at the next tick."""
        log.warning("schedule refused", extra={"schedule_id": schedule.pk, "code": refusal.code})
        schedule.due_at, schedule.next_run_at = due.at, now + self._tick
        schedule.refused_since = schedule.refused_since or now
        schedule.last_error = refusal.code
        schedule.save(update_fields=BOOKED)
        schedule_runs.count_up("refused")

    def _put_off(self, pk: int, error: Exception) -> None:
        """A schedule that cannot be read is tried again at the next tick, and says what is wrong with it."""
        now = self._clock()
        with transaction.atomic():
            put_off = Schedule.objects.filter(pk=pk, next_run_at__lte=now).update(
                next_run_at=now + self._tick,
                refused_since=Coalesce("refused_since", Value(now)),
                last_error=type(error).__name__,
            )
            if put_off:
                schedule_runs.count_up("refused")
