"""What callers may do about deliveries."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from dispatch import selectors, services
from dispatch.access import Caller
from dispatch.clock import store_now
from dispatch.errors import DeliveryNotFound
from dispatch.models import WebhookDelivery
from dispatch.webhooks.selectors import deliveries_of


def redeliver(*, caller: Caller, job_id: str, delivery_id: str, reason: str = "") -> dict[str, Any]:
    """Send a delivery again now, under its own id and with all its tries. Audited.

    Raises JobNotFound, DeliveryNotFound.
    """
    item = selectors.find_job(caller, job_id)
    why = f"{delivery_id[:40]}: {reason}" if reason else delivery_id[:40]
    with transaction.atomic():
        again = WebhookDelivery.objects.filter(work_item=item, delivery_id=delivery_id).update(
            state=WebhookDelivery.PENDING, tries=0, due_at=store_now(), delivered_at=None
        )
        result = "applied" if again else "not_found"
        services.audit(caller, "redeliver", "job", job_id, tenant=item.tenant, reason=why, result=result)
    if not again:
        raise DeliveryNotFound(f"job {job_id} has no delivery {delivery_id[:64]}")
    (delivery,) = (one for one in deliveries_of(item) if one["delivery_id"] == delivery_id)
    return {"job_id": job_id, "delivery": delivery}
