"""Pages of access: API keys, memberships, people."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from fleet.access import api_key_revoke
from fleet.console.base import FleetAdmin, column, time_column
from fleet.console.labels import VARIANTS
from fleet.console.roles import staff_of
from fleet.models import ApiKey


class ApiKeyAdmin(FleetAdmin):
    """Keys by what people may see of them; they are made by `manage.py issue_api_key`."""

    list_display = ("name", "prefix", "state_label", "tenant", "scope_list", "reach", "used", "expires")
    ordering = ("-pk",)
    actions: ClassVar[list[str]] = ["revoke_keys"]
    fields = ("name", "prefix", "state_label", "tenant", "scope_list", "reach", "made", "used", "expires")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return staff_of(request).may_administer

    @admin.action(description="Revoke", permissions=["administer"])
    def revoke_keys(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        if not staff_of(request).may_administer:
            raise PermissionDenied
        if request.POST.get("select_across") == "1":
            self.message_user(request, "Choose the keys themselves; all that match is not taken.", messages.ERROR)
            return
        keys = list(queryset.order_by("pk"))
        revoked = [key for key in keys if api_key_revoke(key=key)]
        LogEntry.objects.log_actions(int(request.user.pk or 0), revoked, CHANGE, change_message="Revoked")
        self.message_user(
            request, f"Revoke: {len(revoked)} revoked, {len(keys) - len(revoked)} already.", messages.INFO
        )

    @column("State", variants=VARIANTS)
    def state_label(self, obj: ApiKey) -> str:
        if obj.revoked_at:
            return "revoked"
        return "expired" if obj.expires_at and obj.expires_at <= timezone.now() else "live"

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
