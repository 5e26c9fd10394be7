"""Pages of access: API keys, memberships, people."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from dispatch.access import Caller
from dispatch.errors import DispatchError
from fleet.access import api_key_issue, api_key_revoke
from fleet.console.base import FleetAdmin, column, time_column
from fleet.console.labels import VARIANTS
from fleet.console.roles import caller_in, caller_over_all, staff_of
from fleet.models import ApiKey


class KeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """A key to make. What is wrong with it the service says, beside the fields."""

    caller: ClassVar[Caller]
    text = ""  # the key itself, once it is made
    name = forms.CharField(max_length=200, help_text="Who will use it", widget=UnfoldAdminTextInputWidget)
    tenant = forms.CharField(max_length=200, help_text="It acts for this one", widget=UnfoldAdminTextInputWidget)
    scopes = forms.MultipleChoiceField(
        choices=[
            ("read", "read: look at everything of its tenant"),
            ("dispatch", "dispatch: dispatch, cancel, retry, reply"),
            ("operate", "operate: pause, resume, kill, schedules"),
        ],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )
    platform = forms.BooleanField(
        required=False, label="Every tenant", help_text="A platform key", widget=UnfoldBooleanWidget
    )
    expires_days = forms.IntegerField(
        required=False,
        label="Days until it expires",
        help_text="Empty: never",
        widget=UnfoldAdminIntegerFieldWidget,
    )

    class Meta:
        model = ApiKey
        fields = ("name", "tenant", "scopes", "platform")

    def clean(self) -> dict[str, Any]:
        sent: dict[str, Any] = dict(super().clean() or {})
        if self.errors:
            return sent
        try:
            # made here and not in `save`: what the service refuses is told in the form
            self.instance, self.text = api_key_issue(caller=self.caller, **sent)
        except DispatchError as refused:
            raise ValidationError(dict(refused.fields) or refused.message) from refused
        return sent

    def _post_clean(self) -> None:
        """The service has checked and written the row."""

    def save(self, commit: bool = True) -> ApiKey:
        return self.instance  # type: ignore[no-any-return]

    def save_m2m(self) -> None:
        """Django asks for it; there is none."""


class ApiKeyAdmin(FleetAdmin):
    """Keys by what people may see of them. A new one is shown once, by the answer to its form."""

    form = KeyForm

    list_display = ("name", "prefix", "state_label", "tenant", "scope_list", "reach", "used", "expires")
    ordering = ("-pk",)
    actions: ClassVar[list[str]] = ["revoke_keys"]
    fields = ("name", "prefix", "state_label", "tenant", "scope_list", "reach", "made", "used", "expires")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return staff_of(request).may_administer

    def has_add_permission(self, request: HttpRequest) -> bool:
        return staff_of(request).may_administer

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*KeyForm.Meta.fields, "expires_days") if obj is None else self.fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is not None:
            return super().get_form(request, obj, change, **{**kwargs, "form": forms.ModelForm})
        sent = request.POST.get("tenant", "")
        staff = staff_of(request)
        caller = caller_over_all(request) if staff.tenants is None else caller_in(request, sent * staff.sees(sent))
        return type("KeyFormOfRequest", (super().get_form(request, obj, change, **kwargs),), {"caller": caller})

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        request.__dict__["_fleet_key"] = form.text
        return form.save()

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """The form has made it, through the service."""

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """The key, this once: it is neither kept nor sent anywhere else."""
        context = {
            **self.admin_site.each_context(request),
            "title": f"Key {obj.name}",
            "opts": self.opts,
            "key": obj,
            "text": request.__dict__["_fleet_key"],
        }
        return TemplateResponse(request, "fleet/new_key.html", context)

    @admin.action(description="Revoke", permissions=["administer"])
    def revoke_keys(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        if not staff_of(request).may_administer:
            raise PermissionDenied
        if request.POST.get("select_across") == "1":
            self.message_user(request, "Choose the keys themselves; all that match is not taken.", messages.ERROR)
            return
        keys = list(queryset.order_by("pk"))
        revoked = [key for key in keys if api_key_revoke(key=key, caller=caller_in(request, key.tenant))]
        LogEntry.objects.log_actions(int(request.user.pk or 0), revoked, CHANGE, change_message="Revoked")
        self.message_user(
            request, f"Revoke: {len(revoked)} revoked, {len(keys) - len(revoked)} already.", messages.INFO
        )

    @column("State", variants=VARIANTS)
    def state_label(self, obj: ApiKey) -> str:
        return obj.ended or "live"

    @column("Scopes")
    def scope_list(self, obj: ApiKey) -> str:
        return ", ".join(obj.scopes)

    @column("Reach")
    def reach(self, obj: ApiKey) -> str:
        return "every tenant" if obj.platform else "its tenant"

    made = time_column("created_at", "Made")
    used = time_column("last_used_at", "Last used")
    expires = time_column("expires_at", "Expires")


class SuperuserOnly(ModelAdmin):
    """A page that superusers alone see and edit."""

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(getattr(request.user, "is_superuser", False) and request.user.is_active)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)


class TenantMembershipAdmin(SuperuserOnly):
    """Which tenants a member of staff sees."""

    list_display = ("user", "tenant")
    list_select_related = ("user",)
    ordering = ("user__username", "tenant")
    search_fields = ("user__username", "tenant")


class UserAdmin(SuperuserOnly, DjangoUserAdmin):  # type: ignore[type-arg]
    """People. They are deactivated, never deleted: their log entries would go with them."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class GroupAdmin(SuperuserOnly, DjangoGroupAdmin):
    """Groups; those of the fleet are `fleet-viewer`, `fleet-operator` and `fleet-admin`."""
