"""The queue beside the state: hints that wake workers, and what closes the door to it."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q


class QueuedTurn(models.Model):
    """The queue row of an unfinished item, where the queue lives in the state store. `state` is a states.QueueState.

    With SQLite the same row is in the queue's own file, and this table does not exist.
    """

    work_item_id = models.BigIntegerField(primary_key=True)
    job_id = models.CharField(max_length=64)
    tenant = models.CharField(max_length=200)
    kind = models.CharField(max_length=20)
    agent_name = models.CharField(max_length=200)
    state = models.SmallIntegerField()
    rank = models.DateTimeField()
    priority = models.SmallIntegerField()
    due_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    published_at = models.DateTimeField(null=True)  # when the envelope of a claimable turn was last sent to a broker
    enqueued_at = models.DateTimeField()

    class Meta:
        db_table = "agent_dispatch_queue"
        indexes = [
            # the claim: lane (agent, kind) first, then tenant; what a consumer does not serve is never met
            models.Index(
                fields=["agent_name", "kind", "tenant", "rank", "work_item_id"],
                condition=Q(state=1),
                name="queue_claim",
            ),
            models.Index(fields=["due_at"], condition=Q(state=2), name="queue_due"),  # the due tick
            models.Index(fields=["deadline"], condition=Q(deadline__isnull=False), name="queue_deadline"),  # expiry
        ]

    def __str__(self) -> str:
        return self.job_id


class AdmissionShard(models.Model):
    """A share of the admission bound, on Postgres: used ≤ quota in each, and the quotas add up to the bound.

    Triggers on the queue keep `used`, each backend in the shard of its own number, so that admissions seldom wait for
    each other; a shard below zero has ended what others admitted. The sum of `used` is the depth. `raised`: a resumed
    turn, which is never refused, has raised the quota, and with it the sum above the bound.
    """

    SHARDS = 64

    used = models.BigIntegerField(default=0)
    quota = models.BigIntegerField(default=0)
    raised = models.BooleanField(default=False)

    class Meta:
        db_table = "admission_shards"
        # nearly always empty: each admission looks into it
        indexes = [models.Index(fields=["id"], condition=Q(raised=True), name="admission_shards_raised")]
        constraints = [
            models.CheckConstraint(condition=Q(used__lte=models.F("quota")), name="admission_shards_bound"),
        ]

    def __str__(self) -> str:
        return f"shard {self.pk}"


class ClaimGate(models.Model):
    """A row shuts: nothing of this scope is claimed. Read by every claim; queue rows are never rewritten for it."""

    SCOPES = ("fleet", "kind", "agent", "tenant")

    scope = models.CharField(max_length=10)
    name = models.CharField(max_length=200, blank=True, default="")
    reason = models.CharField(max_length=500, blank=True, default="")
    set_by = models.CharField(max_length=200, blank=True, default="")
    set_at = models.DateTimeField()

    class Meta:
        db_table = "claim_gates"
        constraints = [
            models.UniqueConstraint(fields=["scope", "name"], name="claim_gates_once"),
            models.CheckConstraint(
                condition=Q(scope__in=["fleet", "kind", "agent", "tenant"]), name="claim_gates_scope"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.name}".strip()


class ClaimLimit(models.Model):
    """How many turns of an agent or a tenant may run at once, and how many may start in a second, over all workers.

    The rate is a bucket of at most `burst` tokens: a start takes one, `rate_per_s` come back in a second. `tokens` is
    what it held at `refilled_at`; whoever claims under the limit locks the row and writes both anew.
    """

    SCOPES = ("agent", "tenant")

    scope = models.CharField(max_length=10)
    name = models.CharField(max_length=200)
    max_running = models.IntegerField(null=True)
    rate_per_s = models.FloatField(null=True)
    burst = models.IntegerField(default=1)
    tokens = models.FloatField(default=0)
    refilled_at = models.DateTimeField()
    reason = models.CharField(max_length=500)
    set_by = models.CharField(max_length=200)
    set_at = models.DateTimeField()

    class Meta:
        db_table = "claim_limits"
        constraints = [
            models.UniqueConstraint(fields=["scope", "name"], name="claim_limits_once"),
            models.CheckConstraint(condition=Q(scope__in=["agent", "tenant"]), name="claim_limits_scope"),
            models.CheckConstraint(
                condition=Q(max_running__isnull=False) | Q(rate_per_s__isnull=False), name="claim_limits_something"
            ),
            models.CheckConstraint(
                condition=(Q(max_running__isnull=True) | Q(max_running__gte=1))
                & (Q(rate_per_s__isnull=True) | Q(rate_per_s__gt=0))
                & Q(burst__gte=1),
                name="claim_limits_positive",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.name}"

    def tokens_at(self, now: datetime) -> float:
        """What the bucket holds now; all of it when there is no rate."""
        if self.rate_per_s is None:
            return float(self.burst)
        since = max(0.0, (now - self.refilled_at).total_seconds())
        return min(float(self.burst), self.tokens + since * self.rate_per_s)


class DeadEnvelope(models.Model):
    """A message that no WorkItem stands behind, or that could not be read: kept, then acked."""

    digest = models.CharField(max_length=64)
    body = models.BinaryField()  # capped
    size = models.IntegerField()
    transport = models.CharField(max_length=20)
    reason = models.CharField(max_length=40)
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "dead_envelopes"

    def __str__(self) -> str:
        return self.digest[:12]
