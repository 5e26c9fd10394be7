"""Closed by default: who may call a view. A view says which scope a request needs; one that says none is shut."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from dispatch.access import Caller
from dispatch.errors import Forbidden

ANY_SCOPE = "*"  # the request is wrong whatever the key may do; any scope may be told so


class HasScope(BasePermission):
    """Let a key pass that has a tenant (or the platform) and the scope that the view requires.

    `view.required_scope` is that scope, or a method that names it for a request.

    No key → 401; no tenant, or not the scope → 403.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        caller: object = request.user
        if not isinstance(caller, Caller) or caller.kind != "api_key":
            raise NotAuthenticated
        needed = getattr(view, "required_scope", None)
        return admits(caller, needed(request) if callable(needed) else needed)


def admits(caller: Caller, scope: str | None) -> bool:
    """True, or raise Forbidden saying what is missing."""
    if not (caller.tenant or caller.platform):
        raise Forbidden("This key has no tenant.")
    if scope is None:
        raise Forbidden("Nobody may call this.")
    if not (caller.scopes if scope == ANY_SCOPE else caller.may(scope)):
        raise Forbidden(f"This key's scopes do not allow it; it needs `{scope}`." if scope != ANY_SCOPE else None)
    return True
