"""Callbacks: where a tenant is told, which jobs it asked about, and what is to be sent."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from dispatch.models.work import WorkItem


class WebhookEndpoint(models.Model):
    """An address of a tenant, and all below it. Its secrets are derived from the salts, and stored nowhere."""

    tenant = models.CharField(max_length=200)
    url = models.CharField(max_length=2000)
    salt = models.CharField(max_length=32)
    old_salt = models.CharField(max_length=32, blank=True, default="")
    old_until = models.DateTimeField(null=True)  # until then what is sent is signed with the old secret as well
    created_at = models.DateTimeField()

    class Meta:
        db_table = "webhook_endpoints"
        verbose_name = "callback endpoint"
        constraints = [models.UniqueConstraint(fields=["tenant", "url"], name="webhook_endpoints_once")]

    def __str__(self) -> str:
        return f"{self.tenant}: {self.url}"


class WebhookWatch(models.Model):
    """A job that asked for callbacks: written in the commit of its admission.

    `seen_event` is the last event of its timeline that was turned into deliveries. Every writer raises `version`: who
    read an older one has read an older job.
    """

    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE, db_constraint=False, db_index=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE)
    url = models.CharField(max_length=2000)
    seen_event = models.BigIntegerField(default=0)
    version = models.IntegerField(default=0)
    done_at = models.DateTimeField(null=True)  # its job has ended and was told of; a manual retry takes it away

    class Meta:
        db_table = "webhook_watches"
        constraints = [models.UniqueConstraint(fields=["work_item", "url"], name="webhook_watches_once")]
        # the round that looks for news
        indexes = [models.Index(fields=["id"], condition=Q(done_at__isnull=True), name="webhook_watches_open")]

    def __str__(self) -> str:
        return f"{self.work_item_id} tells {self.url}"


class WebhookDelivery(models.Model):
    """One event for one address: the outbox. `tries` is the fence of a sender, `due_at` also the end of its lease."""

    PENDING, DELIVERED, DEAD = "pending", "delivered", "dead"
    STATES = (PENDING, DELIVERED, DEAD)

    delivery_id = models.CharField(max_length=40)
    watch = models.ForeignKey(WebhookWatch, on_delete=models.CASCADE, db_index=False)
    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE, db_constraint=False)
    event_id = models.BigIntegerField()
    event = models.CharField(max_length=40)
    body = models.TextField()  # as it is sent, at every try
    state = models.CharField(max_length=10, default=PENDING)
    tries = models.IntegerField(default=0)
    due_at = models.DateTimeField(null=True)  # while it is pending
    created_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True)
    last_status = models.IntegerField(null=True)
    last_error = models.CharField(max_length=100, blank=True, default="")

    class Meta:
        db_table = "webhook_deliveries"
        verbose_name = "callback"
        constraints = [
            models.UniqueConstraint(fields=["delivery_id"], name="webhook_deliveries_id"),
            models.UniqueConstraint(fields=["watch", "event_id"], name="webhook_deliveries_once"),
            models.CheckConstraint(
                condition=Q(state="pending", due_at__isnull=False)
                | Q(state__in=["delivered", "dead"], due_at__isnull=True),
                name="webhook_deliveries_due_iff_pending",
            ),
        ]
        indexes = [
            # what is due
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="webhook_deliveries_due"),
            # how many are dead, and since when the oldest waits
            models.Index(fields=["state", "created_at"], name="webhook_deliveries_state"),
        ]

    def __str__(self) -> str:
        return f"callback {self.delivery_id}"
