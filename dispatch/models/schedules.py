"""Work that comes by the clock."""

from __future__ import annotations

from django.db import models


class Schedule(models.Model):
    """A cron line that becomes one job per due time."""

    tenant = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    cron = models.CharField(max_length=200)
    timezone = models.CharField(max_length=64, default="UTC")
    task = models.TextField()
    agent_name = models.CharField(max_length=200, blank=True)
    session_id = models.CharField(max_length=200, blank=True)
    payload = models.JSONField(default=dict)
    priority = models.SmallIntegerField(default=2)
    catch_up = models.CharField(max_length=10, default="once")  # skip | once | all
    overlap = models.CharField(max_length=10, default="enqueue")  # enqueue | skip | coalesce
    jitter_s = models.FloatField(default=0)
    enabled = models.BooleanField(default=True)
    next_run_at = models.DateTimeField(null=True)
    last_run_at = models.DateTimeField(null=True)
    last_job_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "schedules"
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="schedules_identity")]
        indexes = [models.Index(fields=["next_run_at"], name="schedules_due")]  # the leader's tick

    def __str__(self) -> str:
        return self.name
