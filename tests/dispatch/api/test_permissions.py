"""Who may call a view."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate

from dispatch.access import Caller
from dispatch.api.base import JSONView
from dispatch.api.jobs import JobsView
from dispatch.api.permissions import HasScope


class Reading(JSONView):
    scope = "read"

    def get(self, request: Request) -> Response:
        return Response({"ok": True})


class Shut(JSONView):
    def get(self, request: Request) -> Response:
        return Response({"ok": True})


def key(*scopes: str, tenant: str = "t1", **facts: Any) -> Caller:
    return Caller(tenant=tenant, name="k", kind=facts.pop("kind", "api_key"), scopes=frozenset(scopes), **facts)


def get(view: type[JSONView], user: object, **headers: str) -> Any:
    request = APIRequestFactory().get("/", headers=headers)
    if user is not None:
        force_authenticate(request, user=user)  # type: ignore[arg-type]
    return view.as_view()(request)


def act(body: Any, caller: Caller) -> Any:
    request = APIRequestFactory().post("/api/graph/jobs", body, format="json")
    force_authenticate(request, user=caller)  # type: ignore[arg-type]
    return JobsView.as_view()(request)


def test_a_key_with_the_scope_passes() -> None:
    assert get(Reading, key("read")).status_code == 200


@pytest.mark.parametrize("user", [None, AnonymousUser(), User(is_staff=True), key("read", kind="staff")])
def test_who_is_no_key_is_unauthenticated(user: object) -> None:
    answer = get(Reading, user)
    assert answer.status_code == 401
    assert answer.data["code"] == "unauthenticated"
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("caller", [key(), key("dispatch", "operate"), key("read", tenant="")])
def test_without_the_scope_or_a_tenant_it_is_forbidden(caller: Caller) -> None:
    answer = get(Reading, caller)
    assert (answer.status_code, answer.data["code"]) == (403, "forbidden")


def test_the_platform_needs_no_tenant() -> None:
    assert get(Reading, key("read", tenant="", platform=True)).status_code == 200


def test_a_view_that_names_no_scope_is_shut() -> None:
    assert get(Shut, key("read", "dispatch", "operate", platform=True)).status_code == 403


def test_a_scope_may_also_be_a_plain_attribute() -> None:
    class View:
        required_scope = "operate"

    request = Request(APIRequestFactory().get("/"))
    request.user = key("operate")  # type: ignore[assignment]
    assert HasScope().has_permission(request, View())


@pytest.mark.parametrize("accept", ["text/html", "text/event-stream", "application/xml;q=0.1", "nonsense", ""])
def test_no_accept_header_is_unacceptable(accept: str) -> None:
    answer = get(Reading, key("read"), Accept=accept)
    assert answer.status_code == 200
    assert answer.render().headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("action", ["dispatch", "dispatch_many", "cancel", "retry"])
def test_an_action_that_writes_needs_dispatch(action: str) -> None:
    answer = act({"action": action, "oops": 1}, key("read", "operate"))
    assert (answer.status_code, answer.data["code"]) == (403, "forbidden")
    assert act({"action": action, "oops": 1}, key("dispatch")).status_code == 400


@pytest.mark.parametrize("action", ["status", "wait", "result", "explain", "events", "list"])
def test_an_action_that_reads_needs_read(action: str) -> None:
    answer = act({"action": action, "oops": 1}, key("dispatch", "operate"))
    assert (answer.status_code, answer.data["code"]) == (403, "forbidden")
    assert act({"action": action, "oops": 1}, key("read")).status_code == 400


@pytest.mark.parametrize("body", [{}, {"action": "explode"}, {"action": ["status"]}, {"action": None}])
def test_an_unknown_action_is_told_to_any_key_that_may_do_something(body: Any) -> None:
    answer = act(body, key("operate"))
    assert answer.status_code == 400
    assert list(answer.data["fields"]) == ["action"]
    assert act(body, key()).status_code == 403


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options"])
def test_another_method_is_405(method: str) -> None:
    request = getattr(APIRequestFactory(), method)("/api/graph/jobs")
    force_authenticate(request, user=key("read"))  # type: ignore[arg-type]
    answer = JobsView.as_view()(request)
    assert (answer.status_code, answer.data["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "multipart/form-data; boundary=x", ""])
def test_another_content_type_is_415(kind: str) -> None:
    request = APIRequestFactory().generic("POST", "/api/graph/jobs", '{"action":"list"}', content_type=kind)
    force_authenticate(request, user=key("read"))  # type: ignore[arg-type]
    answer = JobsView.as_view()(request)
    assert (answer.status_code, answer.data["code"]) == (415, "unsupported_media_type")


def test_a_body_too_large_is_413() -> None:
    answer = act({"action": "dispatch", "task": "x" * (1024 * 1024 + 10)}, key("dispatch"))
    assert (answer.status_code, answer.data["code"]) == (413, "too_large")


def test_without_a_key_the_body_is_not_even_read() -> None:
    request = APIRequestFactory().generic("POST", "/api/graph/jobs", "not json", content_type="application/json")
    assert JobsView.as_view()(request).status_code == 401
