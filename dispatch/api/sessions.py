"""Views of sessions: the list, opening one, one session, its turns, and the reply to its question."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch import selectors, services
from dispatch.api import docs
from dispatch.api.base import JSONView, body_of, caller_of, known_session_id
from dispatch.api.inputs import NoQuery, Page, ReplyBody, SessionBody, SessionListQuery, read_query
from dispatch.inputs import read_input


class SessionsView(JSONView):
    """List sessions; open one."""

    def required_scope(self, request: Request) -> str | None:
        return "dispatch" if request.method == "POST" else "read"

    @extend_schema(**docs.SESSION_LIST)
    def get(self, request: Request) -> Response:
        query = read_query(SessionListQuery, request.query_params)
        return Response(selectors.session_list(caller=caller_of(request), **query.model_dump()))

    @extend_schema(**docs.SESSION_OPEN)
    def post(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(SessionBody, body_of(request))
        return Response(services.session_open(caller=caller_of(request), **sent.model_dump()), status=201)


class SessionView(JSONView):
    """Show one session."""

    scope = "read"

    @extend_schema(**docs.SESSION)
    def get(self, request: Request, session_id: str) -> Response:
        read_query(NoQuery, request.query_params)
        return Response(selectors.session_get(caller=caller_of(request), session_id=known_session_id(session_id)))


class SessionTurnsView(JSONView):
    """List a session's turns, in order."""

    scope = "read"

    @extend_schema(**docs.SESSION_TURNS)
    def get(self, request: Request, session_id: str) -> Response:
        query = read_query(Page, request.query_params)
        return Response(
            selectors.session_turns(
                caller=caller_of(request),
                session_id=known_session_id(session_id),
                limit=query.limit,
                cursor=query.cursor,
            )
        )


class SessionReplyView(JSONView):
    """Answer the question that a session waits on."""

    scope = "dispatch"

    @extend_schema(**docs.SESSION_REPLY)
    def post(self, request: Request, session_id: str) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(ReplyBody, body_of(request))
        return Response(
            services.session_reply(
                caller=caller_of(request),
                session_id=known_session_id(session_id),
                text=sent.text,
                choice=sent.choice,
            )
        )
