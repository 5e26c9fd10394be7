"""Who calls the API: `Authorization: Bearer KEY`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db.utils import Error as StoreError
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from dispatch.access import Caller
from dispatch.errors import StoreUnavailable
from dispatch.tracing import traceparent_from
from fleet.access import api_key_authenticate, request_id_from


class ApiKeyAuthentication(BaseAuthentication):
    """Set `request.user` to the Caller who holds the key; without a Bearer header nobody is calling."""

    def authenticate(self, request: Request) -> tuple[Caller, None] | None:
        """Raise AuthenticationFailed for a key that opens nothing, StoreUnavailable when keys cannot be read."""
        scheme, _, text = request.META.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            caller = api_key_authenticate(
                text.strip(), request_id=request_id_from(request.META.get("HTTP_X_REQUEST_ID"))
            )
        except StoreError as error:
            raise StoreUnavailable from error
        if caller is None:
            raise AuthenticationFailed("This key is unknown, expired or revoked.")
        traceparent = traceparent_from(request.META.get("HTTP_TRACEPARENT"))
        return caller if traceparent is None else replace(caller, traceparent=traceparent), None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself, in untyped code
    """How the schema describes the key."""

    target_class = "fleet.api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API key made by `manage.py issue_api_key`."}
