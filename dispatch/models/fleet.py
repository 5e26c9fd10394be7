"""Who works: the registry of workers, the agents they know, the ticks and their leader."""

from __future__ import annotations

from django.db import models


class DispatchWorker(models.Model):
    """One consumer of a worker process, as its own claim loop last reported."""

    worker_id = models.CharField(max_length=300, unique=True)  # <label>:<pid>:agent-dispatch:<n>
    token = models.CharField(max_length=64)  # the owner of its leases
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    capacity = models.IntegerField()
    active_sessions = models.JSONField(
        default=list
    )  # [{"tenant", "session_id", "job_id"}], those stuck with "stuck": true
    stuck = models.IntegerField(default=0)  # slots held by runs that did not stop when told
    queue_backend = models.CharField(max_length=60)
    version = models.CharField(max_length=40)
    agents = models.JSONField(default=list)
    kinds = models.JSONField(default=list)
    started_at = models.DateTimeField()
    last_heartbeat = models.DateTimeField(db_index=True)
    draining = models.BooleanField(default=False)

    class Meta:
        db_table = "dispatch_workers"

    def __str__(self) -> str:
        return self.worker_id


class KnownAgent(models.Model):
    """An agent name that some worker has ever announced: what dispatch accepts beside its own configuration."""

    name = models.CharField(max_length=200, unique=True)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()

    class Meta:
        db_table = "known_agents"

    def __str__(self) -> str:
        return self.name


class KnownCheck(models.Model):
    """A check of goals that some worker has ever announced: what dispatch accepts beside its own registry."""

    name = models.CharField(max_length=200, unique=True)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()

    class Meta:
        db_table = "known_checks"

    def __str__(self) -> str:
        return self.name


class Tick(models.Model):
    """A periodic duty; a guarded update of its row lets one process do it per period."""

    name = models.CharField(max_length=40, unique=True)
    due_at = models.DateTimeField()
    last_started_at = models.DateTimeField(null=True)
    last_success_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=100, blank=True, default="")
    last_count = models.IntegerField(default=0)

    class Meta:
        db_table = "ticks"

    def __str__(self) -> str:
        return self.name


class Leadership(models.Model):
    """Who leads a role, for which term. A new term begins after two silent ticks; writes are guarded by the term."""

    role = models.CharField(max_length=40, unique=True)
    holder = models.CharField(max_length=64)
    term = models.BigIntegerField(default=1)
    beat_at = models.DateTimeField()

    class Meta:
        db_table = "leadership"

    def __str__(self) -> str:
        return f"{self.role}: {self.holder}, term {self.term}"


class CheckFinding(models.Model):
    """A broken rule that the leader's last whole check found: what health evidence shows of it."""

    label = models.CharField(max_length=40, unique=True)
    count = models.IntegerField()
    references = models.JSONField(default=list)  # some of the rows
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()

    class Meta:
        db_table = "check_findings"

    def __str__(self) -> str:
        return f"{self.label}: {self.count}"


class TurnCounter(models.Model):
    """Turns that ended, and iterations of goals, by outcome. Commits add; pruning never touches it: no total falls."""

    outcome = models.CharField(max_length=20)
    shard = models.SmallIntegerField(default=0)
    count = models.BigIntegerField(default=0)

    class Meta:
        db_table = "turn_counters"
        constraints = [models.UniqueConstraint(fields=["outcome", "shard"], name="turn_counters_once")]

    def __str__(self) -> str:
        return f"{self.outcome}: {self.count}"
