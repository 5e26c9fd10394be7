"""What every view of the JSON API shares: JSON in and out whatever `Accept` says, and a scope for each request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from dispatch.access import Caller
from dispatch.api.parsing import StrictJSONParser
from dispatch.api.permissions import HasScope
from dispatch.envelope import is_job_id, is_name
from dispatch.errors import JobNotFound, SessionNotFound

MAX_ECHO = 64  # characters of an unknown id said back


class JSONAnyway(DefaultContentNegotiation):
    """Answer JSON to every `Accept`; nobody gets 406 from an API that has one format."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, str(renderer.media_type)


class JSONView(APIView):
    """One operation. `scope` is what a key needs for it."""

    scope: ClassVar[str | None] = None

    parser_classes = [StrictJSONParser]
    renderer_classes = [JSONRenderer]
    permission_classes = [HasScope]
    content_negotiation_class = JSONAnyway
    metadata_class = None

    def required_scope(self, request: Request) -> str | None:
        return self.scope


def caller_of(request: Request) -> Caller:
    """The caller that HasScope let pass."""
    return cast(Caller, request.user)


def body_of(request: Request) -> dict[str, Any]:
    return cast(dict[str, Any], request.data)


def known_job_id(text: str) -> str:
    """The id, or raise JobNotFound when no job can have it."""
    if not is_job_id(text):
        raise JobNotFound(text[:MAX_ECHO])
    return text


def known_session_id(text: str) -> str:
    """The id, or raise SessionNotFound when no session can have it."""
    if not is_name(text):
        raise SessionNotFound
    return text
