"""Work that comes by the clock."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

CATCH_UP = ("skip", "once", "all")
OVERLAP = ("enqueue", "skip", "coalesce")
RUN_OUTCOMES = ("queued", "manual", "coalesced", "skipped", "missed")
COUNTED = (*RUN_OUTCOMES, "refused")


class Schedule(models.Model):
    """A cron line that becomes one job per due time.

    `due_at` is the cron line's next time, `next_run_at` when it is run: later by its jitter, or by a refusal. Both are
    null while it is off. The leader alone moves them on, under the row's lock, in the transaction that makes the job.
    """

    tenant = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    cron = models.CharField(max_length=200)
    timezone = models.CharField(max_length=64, default="UTC")
    task = models.TextField()
    agent_name = models.CharField(max_length=200, blank=True)
    session_id = models.CharField(max_length=200, blank=True)  # empty: each run is a session of its own
    payload = models.JSONField(default=dict)
    priority = models.SmallIntegerField(default=2)
    catch_up = models.CharField(max_length=10, default="once")
    overlap = models.CharField(max_length=10, default="enqueue")
    jitter_s = models.FloatField(default=0)
    enabled = models.BooleanField(default=True)
    paused_at = models.DateTimeField(null=True)
    paused_by = models.CharField(max_length=200, blank=True, default="")
    paused_reason = models.CharField(max_length=500, blank=True, default="")
    due_at = models.DateTimeField(null=True)
    next_run_at = models.DateTimeField(null=True)
    refused_since = models.DateTimeField(null=True)  # `due_at` has been tried and must not be left out
    last_error = models.CharField(max_length=100, blank=True, default="")  # the code of the last refusal
    last_run_at = models.DateTimeField(null=True)
    last_job_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "schedules"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="schedules_identity"),
            models.CheckConstraint(condition=Q(catch_up__in=CATCH_UP), name="schedules_catch_up"),
            models.CheckConstraint(condition=Q(overlap__in=OVERLAP), name="schedules_overlap"),
            models.CheckConstraint(
                condition=Q(enabled=True, due_at__isnull=False, next_run_at__isnull=False)
                | Q(enabled=False, due_at__isnull=True, next_run_at__isnull=True),
                name="schedules_due_while_enabled",
            ),
        ]
        indexes = [models.Index(fields=["next_run_at"], name="schedules_due")]  # the leader's tick

    def __str__(self) -> str:
        return self.name


class ScheduleRun(models.Model):
    """What became of one due time, or of one run on demand; the newest of each schedule are kept."""

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="runs", db_index=False)
    due_at = models.DateTimeField()  # of several that were missed the first
    at = models.DateTimeField()
    outcome = models.CharField(max_length=10)
    job_id = models.CharField(max_length=64, blank=True, default="")
    count = models.IntegerField(default=1)  # due times that were missed together

    class Meta:
        db_table = "schedule_runs"
        constraints = [models.CheckConstraint(condition=Q(outcome__in=RUN_OUTCOMES), name="schedule_runs_outcome")]
        indexes = [models.Index(fields=["schedule", "id"], name="schedule_runs_newest")]  # a schedule's page, pruning

    def __str__(self) -> str:
        return f"{self.outcome} {self.due_at:%Y-%m-%d %H:%M:%S}"


class ScheduleCounter(models.Model):
    """Due times by what became of them, and how late the queued ones were in all. Never falls."""

    outcome = models.CharField(max_length=10, unique=True)
    count = models.BigIntegerField(default=0)
    late_s = models.FloatField(default=0)

    class Meta:
        db_table = "schedule_counters"

    def __str__(self) -> str:
        return f"{self.outcome}: {self.count}"
