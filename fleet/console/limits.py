"""The page of the limits of claiming: what runs now against each cap, what a rate has left, setting and taking away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from dispatch import limiting
from dispatch.api.inputs import LimitBody
from dispatch.errors import DispatchError
from dispatch.inputs import read_input
from dispatch.models import ClaimLimit
from fleet.console.base import FleetAdmin, column, time_column
from fleet.console.forms import ReasonForm, reason_in, user_id_of
from fleet.console.roles import caller_over_all, staff_of

SCOPES = [("agent", "an agent"), ("tenant", "a tenant")]
FIELDS = ("scope", "name", "max_running", "rate_per_s", "burst", "reason")


class LimitForm(forms.ModelForm):  # type: ignore[type-arg]
    """A limit. Checked as REST checks it, and its sentences stand beside the fields."""

    request: ClassVar[HttpRequest]
    scope = forms.ChoiceField(choices=SCOPES, label="Limit", widget=UnfoldAdminSelectWidget)
    name = forms.CharField(max_length=200, help_text="Of the agent or the tenant", widget=UnfoldAdminTextInputWidget)
    max_running = forms.IntegerField(
        required=False,
        label="Turns at once",
        help_text="Empty: as many as there are slots. What runs over a lower cap goes on.",
        widget=UnfoldAdminIntegerFieldWidget,
    )
    rate_per_s = forms.FloatField(
        required=False,
        label="Starts a second",
        help_text="Empty: no rate. 0.1 is one start in ten seconds.",
        widget=UnfoldAdminTextInputWidget,
    )
    burst = forms.IntegerField(
        required=False,
        label="Burst",
        help_text="Starts that may come at once after a pause; empty: what a second brings, at least one",
        widget=UnfoldAdminIntegerFieldWidget,
    )
    reason = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget)

    class Meta:
        model = ClaimLimit
        fields = FIELDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.initial.update(reason="", burst=self.instance.burst if self.instance.rate_per_s else None)
            for fixed in ("scope", "name"):
                self.fields[fixed].disabled = True

    def clean(self) -> dict[str, Any]:
        sent: dict[str, Any] = dict(super().clean() or {})
        if self.errors:
            return sent
        try:
            read_input(LimitBody, {name: value for name, value in sent.items() if value not in (None, "")})
            limiting.check_set(caller_over_all(self.request), sent["scope"], sent["name"])
        except DispatchError as refused:
            raise ValidationError(dict(refused.fields) or refused.message) from refused
        return sent

    def _post_clean(self) -> None:
        """The service writes the row; what the model would check, the body's reader has checked."""

    def save(self, commit: bool = True) -> ClaimLimit:
        """Set it through the service, and answer the row as it is then."""
        sent: dict[str, Any] = {name: self.cleaned_data.get(name) for name in FIELDS}
        limiting.limit_set(caller=caller_over_all(self.request), **{**sent, "burst": sent["burst"] or None})
        return ClaimLimit.objects.get(scope=sent["scope"], name=sent["name"])

    def save_m2m(self) -> None:
        """Django asks for it; there is none."""


class ClaimLimitAdmin(FleetAdmin):
    """Limits protect what all tenants share: who sees every tenant sets them, the others see what concerns them."""

    tenant_path = None
    empty_words = "Nothing is limited."
    form = LimitForm
    list_display = ("words", "running", "tokens_left", "set_by", "since", "reason")
    ordering = ("scope", "name")
    action_form = ReasonForm
    actions: ClassVar[list[str]] = ["clear_limits"]
    measured = ("running", "tokens_left", "set_by", "since")
    shown = ("words", *measured, "reason")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        tenants = staff_of(request).tenants
        return rows if tenants is None else rows.filter(Q(scope="agent") | Q(scope="tenant", name__in=tenants))

    def has_limit_permission(self, request: HttpRequest) -> bool:
        return staff_of(request).may_steer_all

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_limit_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_limit_permission(request)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if not self.has_limit_permission(request):
            return self.shown
        return FIELDS if obj is None else (*FIELDS, *self.measured)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.measured if self.has_limit_permission(request) else self.shown

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if not self.has_limit_permission(request):
            return super().get_form(request, obj, change, **{**kwargs, "form": forms.ModelForm})
        return type("LimitFormOfRequest", (super().get_form(request, obj, change, **kwargs),), {"request": request})

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        return form.save()

    def save_model(self, request: HttpRequest, obj: ClaimLimit, form: Any, change: bool) -> None:
        """The form has written it, through the service."""

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> str:
        return f"Limit: applied ({form.cleaned_data['reason']})"

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        listed = super().get_changelist_instance(request)
        self._look(request, listed.result_list)
        return listed

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        limit = super().get_object(request, object_id, from_field)
        self._look(request, [limit])
        return limit

    def _look(self, request: HttpRequest, limits: Sequence[Any]) -> None:
        """Note what runs under each; what other tenants run of an agent is for who sees every tenant."""
        tenants = staff_of(request).tenants
        seen = [limit for limit in limits if tenants is None or limit.scope == "tenant"]
        running = limiting.running_under(seen)
        for limit in seen:
            limit.running_now = running[limit.scope, limit.name]

    @admin.action(description="Remove", permissions=["limit"])
    def clear_limits(self, request: HttpRequest, queryset: QuerySet[ClaimLimit]) -> None:
        """Take each chosen one away and tell the outcomes in one message."""
        if not self.has_limit_permission(request):
            raise PermissionDenied
        reason = reason_in(request)
        if not reason:
            self.message_user(request, "Say why, for the audit log: the field Reason is empty.", messages.ERROR)
            return
        outcomes: Counter[str] = Counter()
        caller = caller_over_all(request)
        for limit in queryset.order_by("pk"):
            answer = limiting.limit_clear(caller=caller, scope=limit.scope, name=limit.name, reason=reason)
            outcomes["removed" if answer["outcome"] == "applied" else "already removed"] += 1
            note = f"Remove ({reason})"
            LogEntry.objects.log_actions(user_id_of(request), [limit], DELETION, change_message=note)
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        self.message_user(request, f"Remove: {said}.", messages.INFO)

    @column("Limit")
    def words(self, obj: ClaimLimit) -> str:
        parts = []
        if obj.max_running is not None:
            parts.append(f"{obj.max_running} at once")
        if obj.rate_per_s is not None:
            parts.append(f"{obj.rate_per_s:g} starts a second, burst {obj.burst}")
        return f"{obj.scope.capitalize()} {obj.name}: {', '.join(parts)}"

    @column("Runs now")
    def running(self, obj: ClaimLimit) -> str:
        running = getattr(obj, "running_now", None)
        if running is None:
            return "–"
        if obj.max_running is None:
            return f"{running}, no cap"
        return f"{running} of {obj.max_running}" + (": full" if running >= obj.max_running else "")

    @column("Tokens left")
    def tokens_left(self, obj: ClaimLimit) -> str:
        if obj.rate_per_s is None or not hasattr(obj, "running_now"):
            return "–"
        return f"{obj.tokens_at(timezone.now()):.1f} of {obj.burst}"

    since = time_column("set_at", "Since")
