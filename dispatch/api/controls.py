"""Views that steer sessions: pause, resume, kill."""

from __future__ import annotations

from typing import ClassVar, Literal

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch import services
from dispatch.api import docs
from dispatch.api.base import JSONView, body_of, caller_of
from dispatch.api.inputs import NoQuery, SteerBody, read_query
from dispatch.inputs import read_input


class SteerView(JSONView):
    """Write what is wanted of the chosen sessions."""

    scope = "operate"
    verb: ClassVar[Literal["pause", "resume", "kill"]]

    def post(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(SteerBody, body_of(request))
        return Response(
            services.sessions_control(
                caller=caller_of(request),
                verb=self.verb,
                session_ids=sent.session_ids,
                domain=sent.domain,
                filter=sent.filter.conditions() if sent.filter else None,
                reason=sent.reason,
            )
        )


@extend_schema_view(post=extend_schema(**docs.PAUSE))
class PauseView(SteerView):
    """Let running turns end and start nothing new."""

    verb = "pause"


@extend_schema_view(post=extend_schema(**docs.RESUME))
class ResumeView(SteerView):
    """Go on in order."""

    verb = "resume"


@extend_schema_view(post=extend_schema(**docs.KILL))
class KillView(SteerView):
    """Cancel what is queued and running."""

    verb = "kill"
