"""The page of the pauses of claiming: what is shut, shutting more, and opening."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from dispatch import gatekeeping
from dispatch.access import Caller
from dispatch.api.inputs import GateBody
from dispatch.errors import DispatchError
from dispatch.inputs import read_input
from dispatch.models import ClaimGate
from dispatch.wording import gate_words
from fleet.console.base import FleetAdmin, column, time_column
from fleet.console.forms import ReasonForm, reason_in, user_id_of
from fleet.console.roles import caller_in, caller_over_all, staff_of

SCOPES = [("fleet", "the whole fleet"), ("kind", "a kind"), ("agent", "an agent"), ("tenant", "a tenant")]


def pause_href(scope: str, name: str) -> str:
    """The form, filled in but for the reason."""
    return f"{reverse('admin:dispatch_claimgate_add')}?{urlencode({'scope': scope, 'name': name})}"


def _caller(request: HttpRequest, scope: str, name: str) -> Caller:
    """Who sees every tenant acts for the platform; others in the tenant that they name, if it is theirs."""
    staff = staff_of(request)
    if staff.tenants is None:
        return caller_over_all(request)
    return caller_in(request, name if scope == "tenant" and staff.sees(name) else "")


class ShutForm(forms.ModelForm):  # type: ignore[type-arg]
    """What to shut. Checked by the service, whose sentences stand beside the fields."""

    request: ClassVar[HttpRequest]
    scope = forms.ChoiceField(choices=SCOPES, label="Pause claiming for", widget=UnfoldAdminSelectWidget)
    name = forms.CharField(
        required=False,
        max_length=200,
        help_text="Of the kind, agent or tenant; empty for the whole fleet",
        widget=UnfoldAdminTextInputWidget,
    )
    reason = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget)

    class Meta:
        model = ClaimGate
        fields = ("scope", "name", "reason")

    def clean(self) -> dict[str, Any]:
        sent: dict[str, Any] = dict(super().clean() or {})
        if self.errors:
            return sent
        try:
            given = read_input(GateBody, {name: value for name, value in sent.items() if value})
            gatekeeping.check_shut(_caller(self.request, given.scope, given.name or ""), given.scope, given.name or "")
        except DispatchError as refused:
            raise ValidationError(dict(refused.fields) or refused.message) from refused
        return sent


class ClaimGateAdmin(FleetAdmin):
    """Pauses of the fleet, a kind or an agent are for who sees every tenant; those of a tenant for its people."""

    tenant_path = None
    empty_words = "Nothing is paused."
    form = ShutForm
    list_display = ("words", "scope", "name", "set_by", "since", "reason")
    ordering = ("scope", "name")
    action_form = ReasonForm
    actions: ClassVar[list[str]] = ["open_gates"]
    fields = ("scope", "name", "set_by", "since", "reason")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        tenants = staff_of(request).tenants
        return rows if tenants is None else gatekeeping.concerning(rows, tenants)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return staff_of(request).may_operate

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ShutForm.Meta.fields if obj is None else self.fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return type("ShutFormOfRequest", (super().get_form(request, obj, change, **kwargs),), {"request": request})

    def save_model(self, request: HttpRequest, obj: ClaimGate, form: Any, change: bool) -> None:
        caller = _caller(request, obj.scope, obj.name)
        gatekeeping.gate_shut(caller=caller, scope=obj.scope, name=obj.name, reason=obj.reason)
        obj.pk = ClaimGate.objects.values_list("pk", flat=True).get(scope=obj.scope, name=obj.name)

    @admin.action(description="Open", permissions=["operate"])
    def open_gates(self, request: HttpRequest, queryset: QuerySet[ClaimGate]) -> None:
        """Open each chosen one and tell the outcomes in one message. One refusal does not stop the others."""
        if not staff_of(request).may_operate:
            raise PermissionDenied
        reason = reason_in(request)
        if not reason:
            self.message_user(request, "Say why, for the audit log: the field Reason is empty.", messages.ERROR)
            return
        outcomes: Counter[str] = Counter()
        for gate in queryset.order_by("pk"):
            caller = _caller(request, gate.scope, gate.name)
            try:
                answer = gatekeeping.gate_open(caller=caller, scope=gate.scope, name=gate.name, reason=reason)
            except DispatchError as refused:
                outcomes[refused.code] += 1
                continue
            outcomes["opened" if answer["outcome"] == "applied" else "already open"] += 1
            note = f"Open ({reason})"
            LogEntry.objects.log_actions(user_id_of(request), [gate], DELETION, change_message=note, single_object=True)
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        self.message_user(request, f"Open: {said}.", messages.INFO)

    @column("What is paused")
    def words(self, obj: ClaimGate) -> str:
        said = gate_words(obj, timezone.now())
        return said[0].upper() + said[1:]

    since = time_column("set_at", "Since")
