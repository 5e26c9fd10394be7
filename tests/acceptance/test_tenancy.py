"""A caller reaches its own tenant by every verb and path, and nobody else's by any."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, new_session

pytestmark = [pytest.mark.process, pytest.mark.store, pytest.mark.usefixtures("standing_worker")]


@dataclass(frozen=True)
class Theirs:
    """What tenant t2 has: a session with a finished turn, a running one, a queued one; and one that asks."""

    session: str
    done: str
    running: str
    queued: str
    asking_session: str
    asking: str


@pytest.fixture
def theirs(fleet: Fleet) -> Theirs:
    api, session, asking = fleet.api("t2"), new_session(), new_session()
    done = api.dispatch("note", session)
    running, queued = api.dispatch("wait", session, s=60), api.dispatch("note", session)
    asked = api.dispatch("ask", asking)
    fleet.until_begun(running)
    api.until(asked, "suspended", within=10)
    return Theirs(session, done, running, queued, asking, asked)


def snapshot(fleet: Fleet, theirs: Theirs) -> list[object]:
    api = fleet.api("t2")
    jobs = [api.job(job) for job in (theirs.done, theirs.running, theirs.queued, theirs.asking)]
    for job in jobs:
        job.pop("explain")
    sessions = [api.get(f"/api/sessions/{one}") for one in (theirs.session, theirs.asking_session)]
    return [*jobs, *sessions]


def test_by_every_path_and_verb_anothers_job_answers_as_an_unknown_one(fleet: Fleet, api: Api, theirs: Theirs) -> None:
    before = snapshot(fleet, theirs)
    for job in (theirs.done, theirs.running, theirs.queued, theirs.asking):
        unknown = {"status": "not_found", "error": f"Job {job} not found"}
        for action in ("status", "wait", "result", "cancel", "retry", "explain", "events", "iterations"):
            answer = api.call(action, job_id=job)
            assert (answer.status, answer.json()) == (404, unknown), action
        for path in (f"/api/graph/jobs/{job}", f"/api/graph/jobs/{job}/stream"):
            assert api.request("GET", path).status == 404, path
    assert snapshot(fleet, theirs) == before
    verbs = "SELECT DISTINCT verb FROM audit_entries WHERE object_id = ? AND result = 'not_found' AND tenant = 't1'"
    assert {verb for (verb,) in fleet.state_sql(verbs, theirs.running)} == {"cancel", "retry"}


def test_by_every_path_and_verb_anothers_session_answers_as_an_unknown_one(
    fleet: Fleet, api: Api, theirs: Theirs
) -> None:
    before = snapshot(fleet, theirs)
    for session in (theirs.session, theirs.asking_session):
        for path in (f"/api/sessions/{session}", f"/api/sessions/{session}/turns"):
            answer = api.request("GET", path)
            assert (answer.status, answer.json()["status"]) == (404, "error"), path
        assert api.request("POST", f"/api/sessions/{session}/reply", {"text": "red"}).status == 404
        for verb in ("pause", "resume", "kill"):
            assert api.control(verb, session) == {session: "not_found"}
    assert snapshot(fleet, theirs) == before
    verbs = "SELECT DISTINCT verb FROM audit_entries WHERE object_id = ? AND result = 'not_found' AND tenant = 't1'"
    seen = {verb for (verb,) in fleet.state_sql(verbs, theirs.session)}
    assert seen == {"reply", "pause", "resume", "kill"}


def test_by_domain_and_filter_a_caller_steers_its_own_sessions_alone(fleet: Fleet, api: Api, theirs: Theirs) -> None:
    before = snapshot(fleet, theirs)
    for target in ({"domain": "t2"}, {"filter": {"status": "active"}}, {"filter": {"agent_name": "wait"}}):
        for verb in ("pause", "resume", "kill"):
            answer = api.request("POST", f"/api/fleet/{verb}", {**target, "reason": "a test"})
            assert answer.status == 200
            named = {one["session_id"] for one in answer.json()["results"]}
            assert not named & {theirs.session, theirs.asking_session}
    assert snapshot(fleet, theirs) == before


def test_lists_and_topology_show_nothing_of_another_tenant(fleet: Fleet, api: Api, theirs: Theirs) -> None:
    hidden = (theirs.session, theirs.asking_session, theirs.done, theirs.running, theirs.queued, theirs.asking)
    paths = [
        "/api/graph/jobs?limit=500",
        f"/api/graph/jobs?session_id={theirs.session}",
        "/api/sessions?limit=500",
        "/api/fleet/topology?limit=1000",
        "/api/fleet/health",
    ]
    for path in paths:
        answer = api.request("GET", path)
        assert answer.status == 200, path
        assert not [one for one in hidden if one in answer.text], path
    shown = fleet.platform().request("GET", "/api/fleet/topology?limit=1000").text
    assert theirs.session in shown, "a platform key sees the whole fleet"


def test_a_session_id_of_another_tenant_makes_a_session_of_ones_own(fleet: Fleet, api: Api, theirs: Theirs) -> None:
    before = snapshot(fleet, theirs)
    job = api.dispatch("note", theirs.session)
    assert api.finish([job], 10)[job]["result"]["n"] == 1
    assert api.get(f"/api/sessions/{theirs.session}")["turns"] == 1
    assert snapshot(fleet, theirs) == before


def test_depending_on_anothers_job_answers_as_an_unknown_id_does(api: Api, theirs: Theirs) -> None:
    unknown = "orch-" + "0" * 32
    answers = [api.call("dispatch", task="x", agent_name="note", dependencies=[job]) for job in (theirs.done, unknown)]
    assert [answer.status for answer in answers] == [400, 400]
    assert answers[0].text.replace(theirs.done, unknown) == answers[1].text


def test_without_a_key_or_with_a_wrong_one_everything_but_the_probes_is_closed(fleet: Fleet) -> None:
    paths = ["/api/graph/jobs", "/api/sessions", "/api/fleet/health", "/api/fleet/topology", "/metrics", "/api/schema"]
    for key in ("", "fs_wrong"):
        caller = Api(fleet.port, key)
        for path in paths:
            assert caller.request("GET", path).status == 401, path
        assert caller.call("dispatch", task="x").status == 401
        assert caller.request("GET", "/healthz").status == 200
