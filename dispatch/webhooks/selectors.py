"""Reads of deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Min

from dispatch.clock import rfc3339, store_now
from dispatch.models import WebhookDelivery, WebhookEndpoint, WorkItem


def deliveries_of(item: WorkItem) -> list[dict[str, Any]]:
    """What was, or is to be, told of a job, oldest first."""
    found = WebhookDelivery.objects.filter(work_item=item).select_related("watch").order_by("event_id", "pk")
    return [_delivery(one) for one in found]


def _delivery(one: WebhookDelivery) -> dict[str, Any]:
    return {
        "delivery_id": one.delivery_id,
        "event": one.event,
        "url": address_of(one.watch.url),
        "state": one.state,
        "tries": one.tries,
        "created_at": rfc3339(one.created_at),
        "next_at": rfc3339(one.due_at),
        "delivered_at": rfc3339(one.delivered_at),
        "last_status": one.last_status,
        "last_error": one.last_error or None,
    }


def address_of(url: str) -> str:
    """The address without its query, which may be a secret."""
    return url.partition("?")[0]


def endpoint_list(*, tenant: str | None) -> list[WebhookEndpoint]:
    """Those of a tenant, or of all."""
    found = WebhookEndpoint.objects.order_by("tenant", "url")
    return list(found if tenant is None else found.filter(tenant=tenant))


def delivery_totals() -> dict[str, int]:
    """{state: deliveries} of those that have not been delivered."""
    states = (WebhookDelivery.PENDING, WebhookDelivery.DEAD)
    return {state: WebhookDelivery.objects.filter(state=state).count() for state in states}


def oldest_pending_s() -> float:
    """Since when the oldest delivery waits that has not been taken; 0 without one."""
    oldest: datetime | None = WebhookDelivery.objects.filter(state=WebhookDelivery.PENDING).aggregate(
        oldest=Min("created_at")
    )["oldest"]
    return 0.0 if oldest is None else max(0.0, (store_now() - oldest).total_seconds())
