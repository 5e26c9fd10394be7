"""Who holds a turn, for the pages that show it."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from dispatch import states
from dispatch.models import DispatchWorker, WorkItem
from fleet.console.base import moment
from fleet.console.labels import duration


def lease_of(item: WorkItem) -> dict[str, Any] | None:
    """Who holds it, under which epoch, and until when; None while nobody does."""
    if item.status not in states.LIVE or item.lease_expires_at is None:
        return None
    holder = DispatchWorker.objects.filter(token=item.owner).only("worker_id", "last_heartbeat").first()
    left = (item.lease_expires_at - timezone.now()).total_seconds()
    return {
        "worker": holder.worker_id if holder else "",
        "worker_pk": holder.pk if holder else None,
        "beat": moment(holder.last_heartbeat) if holder else "",
        "token": (item.owner or "")[:8],
        "epoch": item.epoch,
        "expired": left < 0,
        "ends": f"{duration(left)} left" if left >= 0 else f"ended {duration(-left)} ago, not reaped yet",
    }
