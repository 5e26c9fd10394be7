"""The outbox: events of watched jobs become deliveries, and each is claimed, sent and settled under a fence.

A watch is written in the commit that admits its job, and the events that it is told of in the commits that end or
suspend the job; so nothing is lost, whoever dies. A delivery is made once for each event, by a guarded update of its
watch, and sent at least once: who dies between sending and settling leaves it to be sent again, under the same id.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet

from dispatch import states
from dispatch.clock import rfc3339, store_now
from dispatch.models import Outcome, WebhookDelivery, WebhookWatch, WorkItem, WorkItemEvent
from dispatch.outcomes import SUSPEND_INPUT
from dispatch.retry import RetryPolicy, backoff_s
from dispatch.webhooks.posting import Posted

WINDOW = 1_000  # watches looked at in one query
ROUND_S = 0.2  # the thread that looks has other duties
LEASE_MARGIN_S = 5.0
BACKOFF = RetryPolicy(base_s=5.0, cap_s=3_600.0)
_ENDS, _ASKS = Q(to_status__in=sorted(states.TERMINAL)), Q(to_status=states.SUSPENDED, reason=SUSPEND_INPUT)
TOLD = _ENDS | _ASKS | Q(event=states.REMINDER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """A delivery that this sender may send until its lease ends; `tries` is the fence."""

    delivery: WebhookDelivery
    tries: int


class News:
    """Turns the news of watched jobs into deliveries; goes on at the next look where one look was too short."""

    def __init__(self) -> None:
        self._after = 0

    def look(self) -> int:
        """Answers how many deliveries were made."""
        made, end = 0, time.monotonic() + ROUND_S
        while True:
            open_ones = WebhookWatch.objects.filter(done_at=None, pk__gt=self._after).order_by("pk")
            window = list(open_ones[:WINDOW])
            made += _tell(window)
            if len(window) < WINDOW:
                self._after = 0
                return made
            self._after = window[-1].pk
            if time.monotonic() >= end:
                return made


def _tell(watches: Sequence[WebhookWatch]) -> int:
    events: dict[int, list[WorkItemEvent]] = {}
    if watches:
        found = WorkItemEvent.objects.filter(TOLD, work_item_id__in=[watch.work_item_id for watch in watches])
        for event in found.order_by("id"):
            events.setdefault(event.work_item_id, []).append(event)
    fresh = [(watch, [e for e in events.get(watch.work_item_id, []) if e.pk > watch.seen_event]) for watch in watches]
    return sum(_deliver(watch, news) for watch, news in fresh if news)


def _deliver(watch: WebhookWatch, news: Sequence[WorkItemEvent]) -> int:
    """One transaction: the watch has seen these events, and each has its delivery. 0 when somebody was quicker."""
    with transaction.atomic():
        now = store_now()
        ended = news[-1].to_status in states.TERMINAL
        # a manual retry that we have not seen has raised the version: its job is watched on
        moved = WebhookWatch.objects.filter(pk=watch.pk, version=watch.version).update(
            seen_event=news[-1].pk, version=F("version") + 1, done_at=now if ended else None
        )
        item = WorkItem.objects.select_related("session").filter(pk=watch.work_item_id).first() if moved else None
        if item is None:
            return 0
        WebhookDelivery.objects.bulk_create(
            [
                WebhookDelivery(
                    delivery_id=f"msg_{uuid.uuid4().hex}",
                    watch=watch,
                    work_item=item,
                    event_id=event.pk,
                    event=event_type(event),
                    body=_body(item, event),
                    due_at=now,
                    created_at=now,
                )
                for event in news
            ]
        )
    return len(news)


def event_type(event: WorkItemEvent) -> str:
    return f"job.{states.REMINDER if event.event == states.REMINDER else event.to_status}"


def _body(item: WorkItem, event: WorkItemEvent) -> str:
    """References and a status, as of the event: no task, no result."""
    status = states.SUSPENDED if event.event == states.REMINDER else event.to_status
    data: dict[str, Any] = {
        "job_id": item.job_id,
        "session_id": item.session.session_id,
        "kind": item.kind,
        "status": states.public_status(status),
        "payload_ref": item.job_id,
    }
    outcome = Outcome.objects.filter(work_item=item, epoch=event.epoch).first()
    if outcome is not None and status in states.TERMINAL:
        data["result_ref"] = f"outcome:{outcome.pk}"
    told = {"type": event_type(event), "timestamp": rfc3339(event.at), "data": data}
    return json.dumps(told, separators=(",", ":"))


# -- sending -----------------------------------------------------------------------------------------------------------
def is_due() -> bool:
    """Whether a delivery waits to be sent now."""
    return _due(store_now()).exists()


def _due(now: datetime) -> QuerySet[WebhookDelivery]:
    return WebhookDelivery.objects.filter(due_at__lte=now)


def claim(*, lease_s: float, busy: Collection[int] = ()) -> Claimed | None:
    """The delivery that is due longest, taken for so long, and none of the `busy` endpoints; None without one."""
    now = store_now()
    due = _due(now).exclude(watch__endpoint_id__in=list(busy)).order_by("due_at", "pk")
    for pk, tries in list(due.values_list("pk", "tries")[:20]):
        # of several senders the one whose update counts has it
        taken = _due(now).filter(pk=pk, tries=tries)
        if taken.update(tries=tries + 1, due_at=now + timedelta(seconds=lease_s)):
            delivery = WebhookDelivery.objects.select_related("watch__endpoint", "work_item").filter(pk=pk).first()
            if delivery is not None:
                return Claimed(delivery=delivery, tries=tries + 1)
    return None


def settle(claimed: Claimed, posted: Posted, *, most: int, jitter: float | None = None) -> str:
    """Write what came of it, unless the lease has gone to another sender; answers the delivery's state."""
    now = store_now()
    held = WebhookDelivery.objects.filter(pk=claimed.delivery.pk, tries=claimed.tries, state=WebhookDelivery.PENDING)
    if posted.taken:
        held.update(
            state=WebhookDelivery.DELIVERED, due_at=None, delivered_at=now, last_status=posted.status, last_error=""
        )
        return WebhookDelivery.DELIVERED
    over = claimed.tries >= most or posted.gone
    state = WebhookDelivery.DEAD if over else WebhookDelivery.PENDING
    pause = timedelta(seconds=backoff_s(BACKOFF, claimed.tries, random.random() if jitter is None else jitter))
    held.update(
        state=state,
        due_at=None if over else now + pause,
        last_status=posted.status,
        last_error=posted.error[:100],
    )
    return state
