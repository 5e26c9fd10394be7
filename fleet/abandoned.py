"""Operations whose process died: ended as interrupted, with what became of each object until then."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Model
from django.db.models.functions import Coalesce

from dispatch.clock import store_now
from dispatch.maintenance.ticks import Duty, register_duty
from dispatch.models import WorkItem
from dispatch.parts import parts
from fleet.models import BulkOperation
from sessions_app.models import AuditEntry, Session

SILENT = timedelta(seconds=60)  # without a sign of the process that carries one out
CLOCKS_APART = timedelta(minutes=1)  # of the hosts that write operations and audit
AT_ONCE = 20
PART = 500
AUDITED_AS: dict[str, tuple[type[Model], str]] = {"session": (Session, "session_id"), "job": (WorkItem, "job_id")}
RUNNING, INTERRUPTED = "running", "interrupted"

Result = list[int | str]  # primary key, name, outcome

log = logging.getLogger(__name__)


def register() -> None:
    register_duty(lambda tick_s: Duty(name="operations", run=end_abandoned, period_s=tick_s, leader_only=True))


def end_abandoned() -> int:
    """End what nobody carries out any more; answer how many. One that was slow only writes its own end over this."""
    silent = store_now() - SILENT
    running = BulkOperation.objects.filter(status=RUNNING).annotate(said=Coalesce("beat_at", "created_at"))
    ended = 0
    for operation in running.filter(said__lt=silent).order_by("pk")[:AT_ONCE]:
        results = _results(operation)
        counts = dict(Counter(outcome for _, _, outcome in results))
        still = BulkOperation.objects.filter(pk=operation.pk, status=RUNNING, beat_at=operation.beat_at)
        ended += still.update(status=INTERRUPTED, results=results, counts=counts, finished_at=store_now())
        log.warning("operation interrupted", extra={"operation": operation.pk, "outcomes": len(results)})
    return ended


def _results(operation: BulkOperation) -> list[Result]:
    """What it noted itself, and what stands in the audit, which is written with each act."""
    told = {pk: [pk, name, outcome] for pk, name, outcome in operation.results}
    for tenant in operation.selection.get("tenants", []):
        outcomes = _audited(operation, tenant)
        for pk, name in _keys(operation.object_type, tenant, list(outcomes)):
            told.setdefault(pk, [pk, name, outcomes[name]])
    return list(told.values())


def _audited(operation: BulkOperation, tenant: str) -> dict[str, str]:
    """{name: outcome} of its entries in one tenant: from the newest back to its beginning."""
    begun = operation.created_at - CLOCKS_APART
    found = {}
    entries = AuditEntry.objects.filter(tenant=tenant).order_by("-pk")
    for entry in entries.only("at", "request_id", "object_id", "verb", "result").iterator():
        if entry.at < begun:
            break
        if entry.request_id == operation.request_id:
            found[entry.object_id] = "queued" if entry.verb == "retry" else entry.result
    return found


def _keys(object_type: str, tenant: str, names: list[str]) -> Iterator[tuple[int, str]]:
    """Of what the audit names as the operation does. A goal stands there as its job or its session, a callback as its
    job: of those only what the operation noted itself is told.
    """
    if object_type not in AUDITED_AS:
        return
    model, field = AUDITED_AS[object_type]
    for part in parts(names, PART):
        rows = model._default_manager.filter(**{"tenant": tenant, f"{field}__in": part})
        yield from rows.values_list("pk", field)
