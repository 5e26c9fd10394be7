"""Who may look and steer, and what was sampled."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class ApiKey(models.Model):
    """A bearer key: only its digest is kept; `prefix` is what people see of it."""

    SCOPES = ("read", "dispatch", "operate")

    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    tenant = models.CharField(max_length=200)
    scopes = models.JSONField(default=list)
    platform = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "api_keys"
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def ended(self) -> str | None:
        """How it has ended, revoked or expired; None while it opens."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at and self.expires_at <= timezone.now() else None


class TenantMembership(models.Model):
    """A staff member sees this tenant, or with `*` every one. Without a row, none."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tenant_memberships")
    tenant = models.CharField(max_length=200)

    class Meta:
        db_table = "tenant_membership"
        constraints = [models.UniqueConstraint(fields=["user", "tenant"], name="tenant_membership_once")]

    def __str__(self) -> str:
        return self.tenant


class FleetSample(models.Model):
    """The whole fleet in one minute, for charts. A value that could not be read is null; a minute unread has no row.

    `ready`: turns that a worker could claim. `slots`: turns that the live workers can run at once. Totals only grow.
    Waits and runs are those of the minute before, and null also when no turn ended in it.
    """

    at = models.DateTimeField(unique=True)  # the beginning of the minute; two leaders write one row
    depth = models.IntegerField(null=True)
    ready = models.IntegerField(null=True)
    running = models.IntegerField(null=True)
    workers = models.IntegerField(null=True)
    slots = models.IntegerField(null=True)
    oldest_ready_s = models.FloatField(null=True)
    evidence = models.CharField(max_length=12, default="unavailable")  # status of fleet.health.v1
    completed_total = models.BigIntegerField(null=True)
    failed_total = models.BigIntegerField(null=True)
    wait_p50_s = models.FloatField(null=True)
    wait_p95_s = models.FloatField(null=True)
    run_p95_s = models.FloatField(null=True)

    class Meta:
        db_table = "fleet_samples"

    def __str__(self) -> str:
        return self.at.isoformat()


class ScaleMemory(models.Model):
    """The last answers of autoscaling under one policy, so that any web process goes on from them."""

    key = models.CharField(max_length=64, unique=True)
    desired = models.IntegerField()
    changed_at = models.DateTimeField()
    asked = models.JSONField(default=list)  # [[unix time, workers], …]
    updated_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "scale_memories"

    def __str__(self) -> str:
        return self.key[:12]


class BulkOperation(models.Model):
    """One act of somebody on many objects, and what became of each: `results` has (key, name, outcome) of them.

    `request_id` is that of the form that asked for it, so that a form that is sent twice acts once.
    """

    request_id = models.CharField(max_length=100, unique=True)
    verb = models.CharField(max_length=40)
    object_type = models.CharField(max_length=40)
    selection = models.JSONField(default=dict)
    reason = models.CharField(max_length=500)
    actor = models.CharField(max_length=200)
    tenant = models.CharField(max_length=200, blank=True)
    total = models.IntegerField(default=0)
    counts = models.JSONField(default=dict)
    results = models.JSONField(default=list)
    status = models.CharField(max_length=20)  # running | done | interrupted
    created_at = models.DateTimeField()
    beat_at = models.DateTimeField(null=True)  # when the process that carries it out last said so
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "bulk_operations"
        verbose_name = "operation"
        indexes = [
            # what runs, and what a process that died has left: nearly always empty
            models.Index(fields=["id"], condition=models.Q(status="running"), name="bulk_operations_running"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} ({self.status})"


class TurnContent(models.Model):
    """Has no table: it carries the right to read what turns were told and what they said."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = [("view_turn_content", "Can read tasks, payloads, results and output of turns")]
