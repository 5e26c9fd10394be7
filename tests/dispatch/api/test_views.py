"""The addresses, by HTTP, over the real services and store."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.test import Client

from dispatch.api import outputs, steer_outputs
from fleet.access import api_key_create

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = "/api/graph/jobs"
NO_JOB = "orch-" + "0" * 32
ODD_PATHS = [
    f"{JOBS}?limit=many",
    f"{JOBS}?limit=501",
    f"{JOBS}?cursor=%25%25",
    f"{JOBS}?session_id=%00",
    f"{JOBS}?oops=1",
    f"{JOBS}/not-an-id",
    f"{JOBS}/" + "x" * 3000,
    f"{JOBS}/%00",
    f"{JOBS}/a%0Ab",
    f"{JOBS}/{NO_JOB}?oops=1",
    f"{JOBS}/{NO_JOB}/stream",
    f"{JOBS}/%00/stream",
    "/api/sessions/none",
    "/api/sessions/a%0Ab",
    "/api/sessions/a%20b/turns",
    "/api/sessions?status=sleepy",
    "/api/sessions?cursor=%25%25",
    "/api/nothing",
]


class Api:
    """One caller with one key."""

    def __init__(self, tenant: str, *scopes: str) -> None:
        _, key = api_key_create(name=tenant, tenant=tenant, scopes=scopes or ("read", "dispatch", "operate"))
        self.http = Client(headers={"Authorization": f"Bearer {key}"}, raise_request_exception=False)

    def get(self, path: str, **headers: str) -> Any:
        return self.http.get(path, headers=headers)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.http.post(path, json.dumps(body), content_type="application/json")

    def call(self, action: str, **fields: Any) -> Any:
        return self.post(JOBS, {"action": action, **fields})

    def dispatch(self, **fields: Any) -> dict[str, Any]:
        answer = self.call("dispatch", **{"task": "do", "agent_name": "echo", **fields})
        assert answer.status_code == 202, answer.content
        return dict(answer.json())


@pytest.fixture
def api() -> Api:
    return Api("t1")


def test_a_dispatch_answers_202_with_exactly_the_handle(api: Api) -> None:
    answer = api.call("dispatch", task="hello", dependencies="[]", agent_name="echo")
    job = answer.json()["job_id"]
    assert answer.status_code == 202
    assert answer.json() == {
        "job_id": job,
        "session_id": job,
        "kind": "orchestrator_task",
        "dispatch": "queued",
        "status": "pending",
        "status_url": JOBS,
        "status_request": {"action": "status", "job_id": job},
    }


def test_a_status_has_exactly_its_keys(api: Api) -> None:
    job = api.dispatch()["job_id"]
    answer = api.call("status", job_id=job)
    assert answer.json() == {"kind": "orchestrator_task", "status": "pending", "payload_ref": job}


def test_waiting_ends_without_an_error_when_time_is_over(api: Api) -> None:
    job = api.dispatch()["job_id"]
    answer = api.call("wait", job_id=job, timeout_s=0)
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")


@pytest.mark.parametrize("action", ["status", "wait", "result", "cancel", "retry", "explain", "events"])
@pytest.mark.parametrize("job", [NO_JOB, "not-an-id", "x" * 3000])
def test_an_unknown_job_has_exactly_its_body(api: Api, action: str, job: str) -> None:
    answer = api.call(action, job_id=job)
    assert answer.status_code == 404
    assert answer.json() == {"status": "not_found", "error": f"Job {job[:64]} not found"}


def test_another_tenants_job_and_session_are_unknown(api: Api) -> None:
    job = Api("t2").dispatch(session_id="s-2")["job_id"]
    for path in (f"{JOBS}/{job}", f"{JOBS}/{job}/stream", "/api/sessions/s-2", "/api/sessions/s-2/turns"):
        assert api.get(path).status_code == 404
    assert api.post("/api/sessions/s-2/reply", {"text": "x"}).status_code == 404


@pytest.mark.parametrize("path", ODD_PATHS)
def test_odd_addresses_are_refused_in_json(api: Api, path: str) -> None:
    answer = api.get(path)
    assert 400 <= answer.status_code < 500
    assert answer.json()["status"] in ("error", "not_found")


def test_a_refused_dispatch_leaves_no_row(api: Api) -> None:
    for body in (
        {"task": 7},
        {"task": "x", "agent_name": "nobody_knows_this"},
        {"task": "x", "dependencies": [NO_JOB]},
    ):
        answer = api.call("dispatch", **body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
        assert list(answer.json()["fields"]) == [list(body)[-1]]
    assert api.get(JOBS).json() == {"jobs": [], "next_cursor": None}


def test_a_repeated_key_replays_and_another_body_conflicts(api: Api) -> None:
    key = uuid.uuid4().hex
    first = api.dispatch(idempotency_key=key)
    again = api.call("dispatch", task="do", agent_name="echo", idempotency_key=key)
    assert (again.status_code, again.json()) == (200, {**first, "replayed": True})
    other = api.call("dispatch", task="other", agent_name="echo", idempotency_key=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert list(other.json()["fields"]) == ["task"]


def test_a_coalesced_dispatch_answers_200(api: Api) -> None:
    first = api.dispatch(session_id="s-1")
    again = api.call("dispatch", task="newer", agent_name="echo", session_id="s-1", on_busy="coalesce")
    assert (again.status_code, again.json()) == (200, {**first, "coalesced": True})


def test_a_coalesced_dispatch_is_repeated_by_its_key(api: Api) -> None:
    first = api.dispatch(session_id="s-1")
    body = {"agent_name": "echo", "session_id": "s-1", "on_busy": "coalesce", "idempotency_key": uuid.uuid4().hex}
    assert api.call("dispatch", task="newer", **body).json() == {**first, "coalesced": True}
    again = api.call("dispatch", task="newer", **body)
    assert (again.status_code, again.json()) == (200, {**first, "replayed": True})
    other = api.call("dispatch", task="other", **body)
    assert (other.status_code, list(other.json()["fields"])) == (409, ["task"])
    assert [job["job_id"] for job in api.get(JOBS).json()["jobs"]] == [first["job_id"]]


def test_many_are_answered_one_by_one_in_order(api: Api) -> None:
    good = {"task": "a", "agent_name": "echo"}
    answer = api.call("dispatch_many", jobs=[good, {"task": 7}, "x", {"task": "a\0"}, good])
    assert answer.status_code == 202
    jobs = answer.json()["jobs"]
    assert ["job_id" in job for job in jobs] == [True, False, False, False, True]
    assert [job["code"] for job in jobs[1:4]] == ["invalid"] * 3
    assert all(set(job) == {"status", "code", "message", "fields"} for job in jobs[1:4])


def test_a_job_is_cancelled_and_retried(api: Api) -> None:
    job = api.dispatch()["job_id"]
    assert api.call("retry", job_id=job).status_code == 409
    assert api.call("cancel", job_id=job, reason="enough").json() == {
        "job_id": job,
        "status": "cancelled",
        "cancel": "done",
    }
    again = api.call("retry", job_id=job, deadline_s=60)
    assert (again.status_code, again.json()["job_id"]) == (202, job)


def test_a_job_is_shown_listed_and_explained(api: Api) -> None:
    job = api.dispatch(metadata={"domain": "north"})["job_id"]
    assert outputs.Job.model_validate(api.get(f"{JOBS}/{job}").json()).metadata == {"domain": "north"}
    for page in (api.get(f"{JOBS}?limit=1&status=pending").json(), api.call("list", limit=1).json()):
        assert [row.job_id for row in outputs.JobPage.model_validate(page).jobs] == [job]
    assert outputs.Explanation.model_validate(api.call("explain", job_id=job).json()).runnable is False
    assert outputs.JobEvents.model_validate(api.call("events", job_id=job).json()).job_id == job
    assert outputs.JobResult.model_validate(api.call("result", job_id=job).json()).result is None


def test_the_stream_of_an_ended_job_ends_with_its_status(api: Api) -> None:
    job = api.dispatch()["job_id"]
    api.call("cancel", job_id=job)
    answer = api.get(f"{JOBS}/{job}/stream", Accept="text/event-stream")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert b'"status":"cancelled"' in b"".join(answer.streaming_content)


def test_a_stream_refuses_an_id_that_it_never_sent(api: Api) -> None:
    job = api.dispatch()["job_id"]
    answer = api.get(f"{JOBS}/{job}/stream", **{"Last-Event-ID": "soon"})
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["Last-Event-ID"])


def test_a_session_is_opened_once(api: Api) -> None:
    body = {"session_id": "s-1", "metadata": {"team": "blue"}, "state": {"n": 1}}
    first = api.post("/api/sessions", body)
    assert (first.status_code, first.json()["state"]) == (201, {"n": 1})
    again = api.post("/api/sessions", body)
    assert (again.status_code, again.json()["code"]) == (409, "session_exists")
    assert outputs.Session.model_validate(api.get("/api/sessions/s-1").json()).domain == "blue"
    page = outputs.SessionPage.model_validate(api.get("/api/sessions?domain=blue").json())
    assert [row.session_id for row in page.sessions] == ["s-1"]
    assert api.get("/api/sessions/s-1/turns").json() == {"turns": [], "next_cursor": None}


def test_turns_are_listed_in_order(api: Api) -> None:
    jobs = [api.dispatch(session_id="s-1")["job_id"] for _ in range(3)]
    first = outputs.TurnPage.model_validate(api.get("/api/sessions/s-1/turns?limit=2").json())
    rest = outputs.TurnPage.model_validate(
        api.get(f"/api/sessions/s-1/turns?limit=2&cursor={first.next_cursor}").json()
    )
    assert [turn.job_id for turn in (*first.turns, *rest.turns)] == jobs
    assert rest.next_cursor is None


def test_a_reply_that_nobody_asked_for_is_409(api: Api) -> None:
    api.dispatch(session_id="s-1")
    answer = api.post("/api/sessions/s-1/reply", {"text": "blue"})
    assert (answer.status_code, answer.json()["code"]) == (409, "no_question")


@pytest.mark.parametrize(
    "selection", [{"session_ids": ["s-1", "none"]}, {"domain": "t1"}, {"filter": {"status": "active"}}]
)
def test_sessions_are_paused_and_resumed_and_killed(api: Api, selection: dict[str, Any]) -> None:
    job = api.dispatch(session_id="s-1")["job_id"]
    for verb, status in (("pause", "paused"), ("resume", "active"), ("kill", "cancelled")):
        chosen = {"session_ids": ["s-1"]} if verb != "pause" else selection
        answer = api.post(f"/api/fleet/{verb}", {**chosen, "reason": "x"})
        assert answer.status_code == 200
        steer_outputs.SteerAnswer.model_validate(answer.json())
        assert answer.json()["results"][0] == {"session_id": "s-1", "outcome": "applied"}
        assert api.get("/api/sessions/s-1").json()["status"] == status
    assert api.call("status", job_id=job).json()["status"] == "cancelled"


def test_a_steering_body_with_an_unknown_field_changes_nothing(api: Api) -> None:
    api.dispatch(session_id="s-1")
    answer = api.post("/api/fleet/pause", {"session_ids": ["s-1"], "reason": "x", "oops": 1})
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["oops"])
    assert api.get("/api/sessions/s-1").json()["status"] == "active"


def test_reading_needs_read_and_steering_needs_operate(api: Api) -> None:
    api.dispatch(session_id="s-1")
    writer, reader = Api("t1", "dispatch"), Api("t1", "read")
    for path in (JOBS, "/api/sessions", "/api/sessions/s-1", "/api/sessions/s-1/turns"):
        assert writer.get(path).status_code == 403
        assert reader.get(path).status_code == 200
    assert reader.post("/api/sessions", {"session_id": "s-2"}).status_code == 403
    assert reader.post("/api/sessions/s-1/reply", {"text": "x"}).status_code == 403
    for verb in ("pause", "resume", "kill"):
        assert writer.post(f"/api/fleet/{verb}", {"session_ids": ["s-1"], "reason": "x"}).status_code == 403


def test_without_a_key_everything_is_401() -> None:
    for path in (JOBS, f"{JOBS}/{NO_JOB}", f"{JOBS}/{NO_JOB}/stream", "/api/sessions", "/api/sessions/x"):
        answer = Client().get(path)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
