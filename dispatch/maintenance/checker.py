"""The invariant checker: what must hold between items, sessions, queue rows, leases and workers, and does it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, Subquery

from dispatch import states
from dispatch.authority import WorkAuthority
from dispatch.clock import store_now
from dispatch.models import CheckFinding, DispatchWorker, WorkItem, WorkItemDependency
from sessions_app.models import Session

CHECK = "check"  # the tick that notes what it found
WORKER_STUCK = "worker_stuck"
SHOWN = 5  # references named in a finding
QUEUE_RULES = {
    "items_without_envelope": "every unfinished item has its queue row",
    "envelopes_astray": "a queue row says what the state says",
    "envelopes_without_item": "every queue row has its unfinished item",
    "envelopes_unsent": "a claimable turn is announced within two ticks",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One broken rule. `label` is stable; `references` name some of the rows, `count` says how many there are."""

    label: str
    rule: str
    count: int
    references: Sequence[str]
    repairable: bool = True


class Checker:
    """Looks at the whole store, in pages; `repair` mends by the same guarded transitions that the ticks use."""

    def __init__(self, authority: WorkAuthority, *, tick_s: float, stale_s: float) -> None:
        self._authority = authority
        self._tick_s = tick_s
        self._stale_s = stale_s

    def findings(self) -> list[Finding]:
        return self.state_findings() + self.queue_astray()

    def state_findings(self) -> list[Finding]:
        """What is wrong among items, sessions, leases and workers."""
        checks: list[Callable[[], Finding | None]] = [
            self.two_live_leases,
            self.expired_leases,
            self.worker_stuck,
            self.waiting_for_ended,
            self.head_astray,
        ]
        return [finding for check in checks if (finding := check())]

    def repair(self) -> int:
        """Mend what is safe; answers how many things were moved."""
        transitions = self._authority.transitions
        moved = transitions.rescue() + transitions.release_waiting() + transitions.finish_kills()
        heads = [pk for pk in self._heads_astray().values_list("any_item", flat=True) if pk is not None]
        transitions.resync(heads)
        return moved + len(heads) + self._authority.repair()

    def note(self) -> int:
        """Write down what is found now in place of what was found before; answers how many rules are broken.

        Whether queue and state agree is read with the evidence itself.
        """
        findings, now = self.state_findings(), store_now()
        with transaction.atomic():
            CheckFinding.objects.exclude(label__in=[finding.label for finding in findings]).delete()
            for finding in findings:
                row = {"count": finding.count, "references": list(finding.references), "last_seen": now}
                CheckFinding.objects.update_or_create(
                    label=finding.label, defaults=row, create_defaults={**row, "first_seen": now}
                )
        return len(findings)

    def two_live_leases(self) -> Finding | None:
        live = WorkItem.objects.filter(status__in=sorted(states.LIVE))
        doubled = live.values("session_id").annotate(n=Count("pk")).filter(n__gt=1)
        return _finding(
            "two_live_leases",
            "a session has at most one live lease",
            [str(row["session_id"]) for row in doubled],
            repairable=False,
        )

    def expired_leases(self) -> Finding | None:
        late = store_now() - timedelta(seconds=2 * self._tick_s)
        lost = Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=late)
        items = WorkItem.objects.filter(lost, status__in=sorted(states.LIVE))
        return _finding(
            "leases_expired",
            "an expired lease is taken back within two ticks",
            list(items.values_list("job_id", flat=True)),
        )

    def worker_stuck(self) -> Finding | None:
        """A worker that reports itself while its leases lapse: its loop or its keeper is stuck."""
        now = store_now()
        late = now - timedelta(seconds=2 * self._tick_s)
        lapsed = WorkItem.objects.filter(status__in=sorted(states.LIVE), lease_expires_at__lt=late)
        owners = set(lapsed.values_list("owner", flat=True))
        beating = DispatchWorker.objects.filter(
            token__in=owners, last_heartbeat__gte=now - timedelta(seconds=self._stale_s)
        )
        return _finding(
            WORKER_STUCK,
            "a worker that beats renews its leases",
            list(beating.values_list("worker_id", flat=True)),
            repairable=False,
        )

    def waiting_for_ended(self) -> Finding | None:
        """What ended a moment ago lets its dependents go in a transaction that is still to come."""
        late = store_now() - timedelta(seconds=2 * self._tick_s)
        unfinished = WorkItemDependency.objects.filter(
            Q(parent__finished_at__isnull=True) | Q(parent__finished_at__gte=late), work_item=OuterRef("pk")
        )
        waiting = WorkItem.objects.filter(finished_at__isnull=True).filter(
            Q(status=states.SUBMITTED) | Q(status=states.SUSPENDED, suspended_for="children")
        )
        return _finding(
            "waiting_for_ended",
            "nothing waits longer than two ticks for parents or children that have all ended",
            list(waiting.filter(~Exists(unfinished)).values_list("job_id", flat=True)),
        )

    @staticmethod
    def _heads_astray() -> Any:
        """Sessions annotated with `true_head` and `any_item`; a QuerySet with annotations has no name."""
        items = WorkItem.objects.filter(session=OuterRef("pk"))
        unfinished = items.filter(finished_at__isnull=True).order_by("session_seq")
        owing = WorkItem.objects.filter(finished_at__isnull=True).values("session")
        return (
            Session.objects.filter(Q(head_seq__isnull=False) | Q(pk__in=owing))
            .annotate(
                true_head=Subquery(unfinished.values("session_seq")[:1]),
                any_item=Subquery(items.order_by("-session_seq").values("pk")[:1]),
            )
            .filter(~Q(head_seq=F("true_head")) | Q(head_seq__isnull=True) | Q(true_head__isnull=True))
        )

    def head_astray(self) -> Finding | None:
        return _finding(
            "head_astray",
            "a session's head is its first unfinished turn",
            list(self._heads_astray().values_list("session_id", flat=True)),
        )

    def queue_astray(self) -> list[Finding]:
        findings = []
        for label, ids in self._authority.astray().items():
            jobs = WorkItem.objects.filter(pk__in=sorted(ids)[:SHOWN]).values_list("job_id", flat=True)
            findings.append(Finding(label=label, rule=QUEUE_RULES[label], count=len(ids), references=list(jobs)))
        return findings


def _finding(label: str, rule: str, references: Sequence[str], *, repairable: bool = True) -> Finding | None:
    if not references:
        return None
    return Finding(
        label=label, rule=rule, count=len(references), references=list(references)[:SHOWN], repairable=repairable
    )
