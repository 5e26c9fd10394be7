"""What a member of staff may see and do: by group, by the right to read what turns say, and by the tenants
of their memberships.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db.models import Q, Value
from django.http import HttpRequest

from dispatch.access import SCOPES, Caller
from fleet.access import request_id_from

VIEWER = "fleet-viewer"
OPERATOR = "fleet-operator"
ADMIN = "fleet-admin"
GROUPS = (VIEWER, OPERATOR, ADMIN)
EVERY_TENANT = "*"  # a membership that is no tenant's: who has it sees them all, and may steer what they share
READ_CONTENT = "view_turn_content"
_CACHE = "_fleet_staff"


@dataclass(frozen=True, kw_only=True, slots=True)
class Staff:
    """One signed-in person. `tenants` is None for who sees all; without a membership it is empty."""

    name: str
    may_view: bool
    may_read_content: bool  # tasks, payloads, results and output of turns
    may_operate: bool
    may_administer: bool
    tenants: frozenset[str] | None

    @property
    def may_steer_all(self) -> bool:
        """What all tenants share: workers, limits, pauses of the fleet, a kind or an agent."""
        return self.may_operate and self.tenants is None

    @property
    def reach(self) -> str:
        """Whose rows they see, in words."""
        return "all tenants" if self.tenants is None else ", ".join(sorted(self.tenants)) or "no tenant"

    def sees(self, tenant: str) -> bool:
        return self.tenants is None or tenant in self.tenants


def staff_of(request: HttpRequest) -> Staff:
    """Who is signed in; read once a request."""
    known: Staff | None = getattr(request, _CACHE, None)
    if known is None:
        known = _read(request.user)
        setattr(request, _CACHE, known)
    return known


def _read(user: Any) -> Staff:
    if not (isinstance(user, User) and user.is_active and user.is_staff):
        return Staff(
            name="",
            may_view=False,
            may_read_content=False,
            may_operate=False,
            may_administer=False,
            tenants=frozenset(),
        )
    if user.is_superuser:
        return Staff(
            name=user.username,
            may_view=True,
            may_read_content=True,
            may_operate=True,
            may_administer=True,
            tenants=None,
        )
    rights = _rights(user)
    groups = rights["group"]
    return Staff(
        name=user.username,
        may_view=bool(groups),
        may_read_content=bool(groups and rights["permission"]),
        may_operate=bool(groups & {OPERATOR, ADMIN}),
        may_administer=ADMIN in groups,
        tenants=None if groups and EVERY_TENANT in rights["tenant"] else frozenset(rights["tenant"] if groups else ()),
    )


def _rights(user: User) -> dict[str, set[str]]:
    """Groups of the fleet, tenants, and the right to read content, in one statement: every page asks for them."""
    groups = user.groups.order_by().filter(name__in=GROUPS).annotate(what=Value("group")).values_list("what", "name")
    tenants = user.tenant_memberships.order_by().annotate(what=Value("tenant")).values_list("what", "tenant")
    content = Permission.objects.order_by().filter(
        Q(user=user) | Q(group__user=user), codename=READ_CONTENT, content_type__app_label="fleet"
    )
    granted = content.annotate(what=Value("permission")).values_list("what", "codename")
    rights: dict[str, set[str]] = {"group": set(), "tenant": set(), "permission": set()}
    for what, name in groups.union(tenants, granted, all=True):
        rights[what].add(name)
    return rights


def caller_over_all(request: HttpRequest) -> Caller:
    """The signed-in person as the caller of a service, for the platform when they see every tenant; else in none."""
    return replace(caller_in(request, ""), platform=staff_of(request).tenants is None)


def caller_in(request: HttpRequest, tenant: str) -> Caller:
    """The signed-in person as the caller of a service, in one tenant."""
    staff = staff_of(request)
    scopes = SCOPES if staff.may_operate else ("read",) if staff.may_view else ()
    return Caller(
        tenant=tenant,
        name=staff.name,
        kind="staff",
        scopes=frozenset(scopes),
        request_id=request_id_from(request.headers.get("X-Request-Id")),
    )
