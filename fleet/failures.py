"""What failed lately and with what cause, for people who look at the fleet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, OuterRef, Subquery, Window
from django.db.models.functions import Substr

from dispatch import states
from dispatch.models import Outcome, WorkItem
from fleet.selectors import Tenants, scoped

FAILURE_WINDOW = 10_000  # the newest jobs among which failures are looked for; no index is kept for them
GROUPED = 200  # the latest failures that are grouped by their cause
MESSAGE = 300  # characters read of an error
_TYPE = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*): ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A job that failed or was dead-lettered, with the error of its last run."""

    pk: int
    job_id: str
    agent_name: str
    status: str
    code: str
    message: str
    finished_at: datetime

    @property
    def error_type(self) -> str:
        """The name of the exception's type, where the message begins with one."""
        found = _TYPE.match(self.message)
        return found[1] if found else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Failures of one agent with one code and type of error: the newest of them, how many, the first of them."""

    newest: Failure
    count: int
    since: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Failures:
    """Failures among the newest 10,000 jobs of all tenants: how many, and the causes of the latest 200 of them."""

    count: int
    grouped: int
    causes: list[Cause]


def failed_jobs(*, tenant: Tenants) -> Failures:
    newest = WorkItem.objects.order_by("-pk").annotate(first=F("pk") - FAILURE_WINDOW).values("first")[:1]
    failed = WorkItem.objects.filter(pk__gt=Subquery(newest), status__in=[states.FAILED, states.DEAD_LETTER])
    outcome = Outcome.objects.filter(work_item=OuterRef("pk"), epoch=OuterRef("epoch"))
    items = list(
        scoped(failed, tenant)
        .annotate(
            found=Window(Count("*")),
            error_code=Subquery(outcome.values("error_code")[:1]),
            error_message=Substr(Subquery(outcome.values("error_message")[:1]), 1, MESSAGE),
        )
        .order_by("-pk")
        .only("job_id", "agent_name", "status", "epoch", "created_at", "finished_at")[:GROUPED]
    )
    causes = by_cause([_failure(item) for item in items])
    return Failures(count=items[0].found if items else 0, grouped=len(items), causes=causes)


def by_cause(failures: Sequence[Failure]) -> list[Cause]:
    """Failures, newest first, put together by agent, code and the type of the error; in the order of their newest."""
    groups: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((failure.agent_name, failure.code, failure.error_type), []).append(failure)
    return [
        Cause(newest=group[0], count=len(group), since=min(failure.finished_at for failure in group))
        for group in groups.values()
    ]


def _failure(item: Any) -> Failure:
    return Failure(
        pk=item.pk,
        job_id=item.job_id,
        agent_name=item.agent_name,
        status=item.status,
        code=item.error_code or "",
        message=item.error_message or "",
        finished_at=item.finished_at or item.created_at,
    )
