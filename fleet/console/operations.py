"""Acting on rows of a page: what would be done is shown, confirmed with a reason, done once, and told for each row.

The first POST of an action answers with the confirming page, which carries the rows themselves and what was seen of
them; the second one acts. One `request_id` is one operation, however often its form is sent.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from dispatch.access import Caller
from dispatch.parts import parts
from fleet.access import REQUEST_ID
from fleet.console.base import FleetAdmin
from fleet.console.forms import reason_in, user_id_of
from fleet.console.labels import label
from fleet.console.roles import caller_in, staff_of
from fleet.console.verbs import Button, Confirming, Group, Line, Told, Verb, count_words, read_targets
from fleet.models import BulkOperation

FOR_ADMINISTRATORS = 1_000  # more rows at once than an operator may touch
TYPED = 25  # more rows than this, and their number has to be typed
SHOWN = 25  # rows that the confirming page names
PART = 500  # rows read, and acted on, at once
BEAT_S = 5.0  # between two signs of an operation that goes on
ACTED = ("applied", "requested", "done", "queued")  # outcomes after which something is otherwise than before


class ActingAdmin(FleetAdmin):
    """A page whose rows may be acted on, chosen one by one or all that match the filter."""

    verbs: ClassVar[dict[str, Verb]] = {}  # by the name of its action
    noun: ClassVar[tuple[str, str]] = ("row", "rows")
    name_field: ClassVar[str] = "pk"  # what people call a row by
    most: ClassVar[int] = 1_000  # rows of one operation

    def name_of(self, row: Any) -> str:
        return str(getattr(row, self.name_field))

    def domain_of(self, request: HttpRequest) -> str:
        """The domain that the list is narrowed to; its name is typed instead of a number."""
        return ""

    def buttons(self, request: HttpRequest, row: Any) -> list[Button]:
        """What may be done to one row, for its own page."""
        if not self.has_operate_permission(request):
            return []
        return [
            Button(action=action, title=verb.title, applies=verb.applies(row), destructive=verb.destructive)
            for action, verb in self.verbs.items()
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        offered = list(self.verbs.items()) if self.has_operate_permission(request) else []
        context = {"fleet_verbs": offered, "fleet_noun": self.noun[1], **(extra_context or {})}
        return super().changelist_view(request, context)

    def answer(self, request: HttpRequest, queryset: QuerySet[Any], action: str) -> HttpResponse | None:
        """The confirming page, or the operation's own; None with a message when nothing can be chosen."""
        if not self.has_operate_permission(request):
            raise PermissionDenied
        if request.POST.get("select_across") == "1":
            said = f"Choose the {self.noun[1]} themselves, or use the buttons for all that match above the list."
            self.message_user(request, said, messages.ERROR)
            return None
        if request.POST.get("confirmed") == "yes":
            return self._confirmed(request, action)
        rows, problem = self._chosen(request, queryset)
        if problem:
            self.message_user(request, problem, messages.ERROR)
            return None
        return self._ask(request, action, rows, typed=self._to_type(request, rows))

    def _chosen(self, request: HttpRequest, queryset: QuerySet[Any]) -> tuple[list[Any], str]:
        if request.POST.get("match") != "all":
            rows = list(queryset.order_by("pk")[: self.most])
            return (rows, "") if rows else ([], f"No {self.noun[0]} of this list was chosen.")
        listed = self.get_changelist_instance(request)
        if not (listed.query or listed.has_active_filters):
            return [], f"Narrow the list first: without a filter all {self.noun[1]} of the fleet would match."
        rows = list(listed.get_queryset(request).order_by("pk")[: self.most + 1])
        if not rows:
            return [], f"No {self.noun[0]} matches any more."
        return (rows, "") if len(rows) <= self.most else ([], self._too_many(self.most))

    def _too_many(self, limit: int) -> str:
        return f"More than {limit:,} {self.noun[1]} match. Narrow the filter, or do it in parts. Nothing was done."

    def _to_type(self, request: HttpRequest, rows: Sequence[Any]) -> str:
        if request.POST.get("match") != "all":
            return ""
        return self.domain_of(request) or (str(len(rows)) if len(rows) > TYPED else "")

    def _ask(
        self,
        request: HttpRequest,
        action: str,
        rows: Sequence[Any],
        *,
        typed: str,
        problem: str = "",
        targets: str = "",
        request_id: str = "",
    ) -> HttpResponse:
        verb = self.verbs[action]
        counts = Counter((row.status, verb.applies(row)) for row in rows)
        what = self.name_of(rows[0]) if len(rows) == 1 else f"{len(rows):,} {self.noun[1]}"
        page = Confirming(
            question=f"{verb.title} {what}?",
            verb=verb,
            action=action,
            groups=[Group(count=n, label=label(state), applies=ok) for (state, ok), n in counts.most_common()],
            lines=[self._line(row) for row in rows[:SHOWN]],
            more=max(0, len(rows) - SHOWN),
            targets=targets or ",".join(f"{row.pk}={verb.expects(row)}" for row in rows),
            request_id=request_id or uuid.uuid4().hex,
            reason=reason_in(request),
            type_this=typed,
            problem=problem,
            list_href=self._list_href(),
        )
        context = {
            **self.admin_site.each_context(request),
            "title": page.question,
            "opts": self.opts,
            "page": page,
            "fleet_noun": self.noun[1],
        }
        return TemplateResponse(request, "fleet/confirm.html", context)

    def _line(self, row: Any) -> Line:
        return Line(name=self.name_of(row), href=self._href(row.pk), label=label(row.status), tenant=row.tenant)

    def _href(self, pk: int) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[pk])

    def _list_href(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def _confirmed(self, request: HttpRequest, action: str) -> HttpResponse:
        verb = self.verbs[action]
        expected = read_targets(request.POST.get("targets", ""), self.most)
        request_id = request.POST.get("request_id", "")
        if not REQUEST_ID.fullmatch(request_id):
            raise BadRequest("request_id: must be that of the form")
        known = BulkOperation.objects.filter(request_id=request_id).first()
        if known is not None:
            return self._told_already(request, known)
        rows = [row for part in parts(list(expected), PART) for row in self.get_queryset(request).filter(pk__in=part)]
        rows.sort(key=lambda row: int(row.pk))
        reason = reason_in(request)
        typed = request.POST.get("type_this", "")
        if problem := self._refused(request, verb, len(expected), reason, typed):
            if not rows:
                self.message_user(request, problem, messages.ERROR)
                return redirect(self._list_href())
            return self._ask(
                request,
                action,
                rows,
                typed=typed,
                problem=problem,
                targets=request.POST["targets"],
                request_id=request_id,
            )
        return self._carry_out(request, verb, rows, expected, reason, request_id)

    def _refused(self, request: HttpRequest, verb: Verb, count: int, reason: str, typed: str) -> str:
        """Why nothing is done; "" when it may be."""
        staff = staff_of(request)
        if count > FOR_ADMINISTRATORS and not staff.may_administer:
            return f"More than {FOR_ADMINISTRATORS:,} at once are for the group fleet-admin. Nothing was done."
        if typed and not typed.isdigit() and verb.destructive and not staff.may_administer:
            return f"To {verb.title.lower()} a whole domain is for the group fleet-admin. Nothing was done."
        if verb.needs_reason and not reason:
            return "Say why, for the audit log: the field Reason is empty. Nothing was done."
        if (typed or count > TYPED) and request.POST.get("typed", "").strip() != (typed or str(count)):
            return f"Type {typed or count} to confirm. Nothing was done."
        return ""

    def _carry_out(
        self,
        request: HttpRequest,
        verb: Verb,
        rows: Sequence[Any],
        expected: dict[int, str],
        reason: str,
        request_id: str,
    ) -> HttpResponse:
        tenants = {row.tenant for row in rows}
        operation, made = BulkOperation.objects.get_or_create(
            request_id=request_id,
            defaults={
                "verb": verb.name,
                "object_type": self.noun[0],
                "selection": {"tenants": sorted(tenants)},
                "reason": reason,
                "actor": staff_of(request).name,
                "tenant": tenants.pop() if len(tenants) == 1 else "",
                "total": len(expected),
                "status": "running",
                "created_at": timezone.now(),
            },
        )
        if not made:
            return self._told_already(request, operation)
        told: list[tuple[Any, str]] = []
        status = "interrupted"
        beat = time.monotonic()
        try:
            for outcome in self._outcomes(request, verb, rows, expected, reason, request_id):
                told.append(outcome)
                if time.monotonic() >= beat + BEAT_S:
                    beat = time.monotonic()
                    self._beat(operation, told)
            status = "done"
        finally:
            self._write_down(request, operation, verb, told, expected, status)
        return self._tell(request, operation, verb, told)

    def _beat(self, operation: BulkOperation, told: Sequence[tuple[Any, str]]) -> None:
        """Say that somebody is still at it: one that says nothing for a minute is ended as interrupted."""
        results = [[row.pk, self.name_of(row), outcome] for row, outcome in told]
        BulkOperation.objects.filter(pk=operation.pk).update(beat_at=timezone.now(), results=results)

    def _outcomes(
        self,
        request: HttpRequest,
        verb: Verb,
        rows: Sequence[Any],
        expected: dict[int, str],
        reason: str,
        request_id: str,
    ) -> Told:
        """Act on what is still as it was when it was looked at; the rest is told as changed."""

        def caller(tenant: str) -> Caller:
            return replace(caller_in(request, tenant), request_id=request_id)

        changed = [row for row in rows if verb.expects(row) != expected[row.pk]]
        yield from ((row, "changed") for row in changed)
        left = {row.pk for row in changed}
        yield from verb.act(caller, [row for row in rows if row.pk not in left], reason)

    def _write_down(
        self,
        request: HttpRequest,
        operation: BulkOperation,
        verb: Verb,
        told: Sequence[tuple[Any, str]],
        expected: dict[int, str],
        status: str,
    ) -> None:
        """The operation with the outcome of each row, and the console's own log of what became different."""
        results = [[row.pk, self.name_of(row), outcome] for row, outcome in told]
        if status == "done":
            seen = {row.pk for row, _ in told}
            results += [[pk, "", "gone"] for pk in expected if pk not in seen]
        operation.results = results
        operation.counts = dict(Counter(outcome for _, _, outcome in results))
        operation.status = status
        operation.finished_at = timezone.now()
        operation.save(update_fields=["results", "counts", "status", "finished_at"])
        for outcome in ACTED:
            acted = [row for row, what in told if what == outcome]
            why = f"{operation.reason}; " if operation.reason else ""
            note = f"{verb.title}: {outcome} ({why}request {operation.request_id})"
            if acted:
                LogEntry.objects.log_actions(user_id_of(request), acted, CHANGE, change_message=note)

    def _tell(
        self, request: HttpRequest, operation: BulkOperation, verb: Verb, told: Sequence[tuple[Any, str]]
    ) -> HttpResponse:
        fine = all(outcome in ACTED for _, outcome in told) and len(told) == operation.total
        level = messages.SUCCESS if fine else messages.WARNING
        self.message_user(request, f"{verb.title}: {count_words(operation.counts)}.", level)
        if operation.total == 1 and told:
            return redirect(self._href(told[0][0].pk))
        return redirect(_operation_href(operation))

    def _told_already(self, request: HttpRequest, operation: BulkOperation) -> HttpResponse:
        self.message_user(request, "This was asked before, and was done once.", messages.INFO)
        return redirect(_operation_href(operation))


def offer(action: str, verb: Verb) -> Callable[..., HttpResponse | None]:
    """The action of a list that asks for this verb."""

    @admin.action(description=verb.title, permissions=["operate"])
    def run(page: ActingAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return page.answer(request, queryset, action)

    return run


def _operation_href(operation: BulkOperation) -> str:
    return reverse("admin:fleet_bulkoperation_change", args=[operation.pk])
