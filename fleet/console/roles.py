"""What a member of staff may see and do: by group, and by the tenants of their memberships."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Value
from django.http import HttpRequest

from dispatch.access import SCOPES, Caller
from fleet.access import request_id_from

VIEWER = "fleet-viewer"
OPERATOR = "fleet-operator"
ADMIN = "fleet-admin"
GROUPS = (VIEWER, OPERATOR, ADMIN)
_CACHE = "_fleet_staff"


@dataclass(frozen=True, kw_only=True, slots=True)
class Staff:
    """One signed-in person. `tenants` is None for who sees all; without a membership it is empty."""

    name: str
    may_view: bool
    may_operate: bool
    may_administer: bool
    tenants: frozenset[str] | None

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
        return Staff(name="", may_view=False, may_operate=False, may_administer=False, tenants=frozenset())
    if user.is_superuser:
        return Staff(name=user.username, may_view=True, may_operate=True, may_administer=True, tenants=None)
    groups, tenants = _memberships(user)
    return Staff(
        name=user.username,
        may_view=bool(groups),
        may_operate=bool(groups & {OPERATOR, ADMIN}),
        may_administer=ADMIN in groups,
        tenants=frozenset(tenants) if groups else frozenset(),
    )


def _memberships(user: User) -> tuple[set[str], set[str]]:
    """Groups of the fleet and tenants, in one statement: every page asks for them."""
    groups = user.groups.order_by().filter(name__in=GROUPS).annotate(what=Value("group")).values_list("what", "name")
    tenants = user.tenant_memberships.order_by().annotate(what=Value("tenant")).values_list("what", "tenant")
    found = list(groups.union(tenants, all=True))
    return {name for what, name in found if what == "group"}, {name for what, name in found if what == "tenant"}


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
