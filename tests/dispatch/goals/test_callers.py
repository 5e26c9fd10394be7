"""What callers may dispatch as a goal, and what they read of it, over the real services and store."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from dispatch import services, states, testing, wiring
from dispatch.access import Caller
from dispatch.agents.checks import CHECKS, Checks, check
from dispatch.agents.registry import BadAgent
from dispatch.api import outputs
from dispatch.errors import Invalid, JobNotFound
from dispatch.iterations import job_iterations
from dispatch.models import KnownCheck
from dispatch.ports import Serves
from dispatch.selectors import job_explain, job_get, job_list
from dispatch.specs import DispatchSpec
from dispatch.worker_ports import Beat
from dispatch.worker_registry import DatabaseWorkerRegistry
from sessions_app.models import Goal
from tests.dispatch.authority import world
from tests.dispatch.goals.test_store import STORE, claim, done
from tests.fleet import rows

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

ALL = frozenset({"read", "dispatch", "operate"})
MINE = Caller(tenant="t1", name="me", kind="api_key", scopes=ALL)
THEIRS = Caller(tenant="t2", name="they", kind="api_key", scopes=ALL)
JOBS = "/api/graph/jobs"


def dispatch(caller: Caller = MINE, **body: Any) -> str:
    whole = {"task": "do it", "agent_name": "echo", "kind": "goal_loop", **body}
    return str(services.job_dispatch(caller=caller, spec=DispatchSpec.parse(whole)).handle["job_id"])


def refused(**body: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        dispatch(**body)
    return caught.value.fields


@pytest.fixture
def allowed(settings: Settings) -> None:
    settings.FLEETSITE = settings.FLEETSITE.model_copy(update={"agent_validation_commands": ("pytest", "/opt/check")})


def test_a_command_that_is_not_allowed_is_refused_by_name(allowed: None) -> None:
    right = {"validation.command": "must begin with one of AGENT_VALIDATION_COMMANDS: pytest, /opt/check"}
    for argv in (["sh", "-c", "pytest"], ["check"], ["/usr/bin/pytest"], ["./pytest"], [" pytest"]):
        assert refused(validation={"command": argv}) == right, argv
    for argv in (["pytest", "-q"], ["/opt/check"]):
        assert dispatch(validation={"command": argv, "timeout_s": 5}).startswith("goal-")


def test_nothing_is_allowed_unless_somebody_allowed_it() -> None:
    right = {"validation.command": "is not possible: AGENT_VALIDATION_COMMANDS is empty"}
    assert refused(validation={"command": ["true"]}) == right
    assert not Goal.objects.exists()


def test_a_check_that_nobody_ever_announced_is_refused_and_one_that_a_worker_has_is_not() -> None:
    right = {"validation.check": "must be a check of this configuration or one that a worker has announced"}
    assert refused(validation={"check": "elsewhere"}) == right
    registry = DatabaseWorkerRegistry(queue_backend="test", checks=("elsewhere",))
    registry.beat(
        Beat(
            worker_id="w:1:agent-dispatch:0",
            token="token",
            host="h",
            pid=1,
            capacity=1,
            active=[],
            stuck=[],
            serves=Serves(agents=("echo",), kinds=states.KINDS),
            started_at=1.0,
        )
    )
    assert KnownCheck.objects.filter(name="elsewhere").exists()
    assert dispatch(validation={"check": "elsewhere"})


def test_a_check_of_this_process_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHECKS, "_checks", {})
    check("mine")(lambda turn, result: True)
    assert wiring.checks() == ("mine",)
    assert dispatch(validation={"check": "mine"})


def test_a_bad_check_is_refused_where_it_is_registered() -> None:
    checks = Checks()
    checks.add("a", refused)
    checks.add("a", refused)
    for name, fn in (("a", dispatch), ("two words", dispatch), ("b", "no function"), ("c", _generator)):
        with pytest.raises(BadAgent):
            checks.add(name, fn)  # type: ignore[arg-type]
    assert checks.names() == ("a",)


def _generator() -> Any:
    yield True


@pytest.mark.parametrize(
    ("fields", "right"),
    [
        ({"validation": {"schema": {"type": "sort"}}}, "has a schema that is no JSON schema (2020-12): "),
        (
            {"validation": {"schema": {"$ref": "https://example.org/s"}}},
            "has a schema that refers to https://example.org/s; only what lies in it, #…, is read",
        ),
        (
            {"validation": {"schema": {"items": [{"$dynamicRef": "file:///etc/passwd"}]}}},
            "has a schema that",
        ),
        ({"validation": {"schema": {"const": "x" * 70_000}}}, "must be an object of at most 64 KiB"),
        ({"validation": {"command": ["a"], "timeout_s": 0}}, "has a timeout_s that is not a number of seconds"),
        ({"validation": {"command": ["a"], "shell": True}}, "must be an object with one of"),
        ({"validation": {"command": ["a"] * 65}}, "must be an object with one of"),
        ({"validation": {"check": "two words"}}, "must be an object with one of"),
        ({"constraints": {"max_seconds": 0}}, "has a max_seconds that is not a number of seconds above 0"),
        ({"constraints": {"max_seconds": True}}, "has a max_seconds that is not a number of seconds above 0"),
        ({"constraints": {"max_seconds": "9"}}, "has a max_seconds that is not a number of seconds above 0"),
        ({"constraints": ["x" * 70_000]}, "must be an object or a list of at most 64 KiB"),
    ],
)
def test_what_cannot_be_a_goal_is_refused_with_the_fields_name(fields: dict[str, Any], right: str) -> None:
    (name,) = fields
    said = refused(**fields)
    assert list(said) == [name]
    assert said[name].startswith(right)


def test_in_a_list_each_goal_has_its_own_answer() -> None:
    bodies: list[dict[str, Any]] = [
        {"task": "a", "agent_name": "echo", "kind": "goal_loop", "validation": {"check": "no"}},
        {"task": "b"},
    ]
    answers = services.job_dispatch_many(caller=MINE, specs=[DispatchSpec.parse(body) for body in bodies])
    assert answers[0]["fields"].keys() == {"validation.check"}
    assert answers[1]["dispatch"] == "queued"


def test_a_job_tells_how_far_its_goal_is_and_a_list_does_too() -> None:
    job = dispatch(objective="reach it", max_iterations=4)
    other = dispatch(kind="orchestrator_task")
    item = world.fresh_by(Goal.objects.get(job_id=job).work_item_id)
    lease = claim(item)
    assert job_get(caller=MINE, job_id=job)["goal"] == {
        "objective": "reach it",
        "iteration": 0,
        "max_iterations": 4,
        "last_validation": None,
    }
    verdict = {"by": "check", "passed": False, "output": "no", "exit_code": None, "timed_out": False, "seconds": 0.1}
    STORE.commit(lease, done(1, validation=verdict))
    read = job_get(caller=MINE, job_id=job)
    assert (read["goal"]["iteration"], read["goal"]["last_validation"]) == (1, verdict)
    told = job_explain(caller=MINE, job_id=job)["detail"]
    assert told.startswith("it runs on a worker, attempt 1, iteration 2 of 4; its lease lasts ")
    world.authority().transitions.pause([item.session_id], by="me", reason="")
    told = job_explain(caller=MINE, job_id=job)["detail"]
    assert ", iteration 2 of 4, which is its last before the pause of its session; " in told
    listed = {one["job_id"]: one.get("goal") for one in job_list(caller=MINE)["jobs"]}
    assert listed == {job: read["goal"], other: None}


def test_iterations_are_read_by_pages_in_the_callers_tenant(client: Client) -> None:
    job = dispatch(max_iterations=9)
    lease = claim(world.fresh_by(Goal.objects.get(job_id=job).work_item_id))
    verdict = {"by": "schema", "passed": False, "output": "", "exit_code": None, "timed_out": False, "seconds": 0.1}
    for iteration in range(1, 6):
        STORE.commit(lease, done(iteration, validation=verdict))

    def page(**more: Any) -> Any:
        body = json.dumps({"action": "iterations", "job_id": job, **more})
        return client.post(JOBS, body, content_type="application/json", headers=rows.key("t1", "read"))

    seen, cursor = [], None
    while True:
        answer = page(limit=2, **({"cursor": cursor} if cursor else {}))
        assert answer.status_code == 200, answer.content
        read = outputs.IterationPage.model_validate(answer.json())
        seen += [row.iteration for row in read.iterations]
        cursor = read.next_cursor
        if cursor is None:
            break
    assert seen == [1, 2, 3, 4, 5]
    assert page(limit=0).json()["fields"].keys() == {"limit"}
    assert page(cursor="no").json()["fields"].keys() == {"cursor"}
    with pytest.raises(JobNotFound):
        job_iterations(caller=THEIRS, job_id=job)
    assert job_iterations(caller=MINE, job_id=dispatch(kind="orchestrator_task"))["iterations"] == []


def test_goals_run_inside_a_test_by_drain_and_inline(settings: Settings) -> None:
    fits = {"schema": {"properties": {"turn": {"const": 1}}}}
    never = {"schema": {"properties": {"turn": {"const": "no"}}}}
    reached, missed = dispatch(validation=fits), dispatch(validation=never, max_iterations=2)
    assert testing.drain() == 2
    assert job_get(caller=MINE, job_id=reached)["result"] == {"echo": "do it", "turn": 1, "demo": True}
    read = job_get(caller=MINE, job_id=missed)
    assert (read["status"], read["error"]["code"], read["goal"]["iteration"]) == ("failed", "not_validated", 2)
    assert read["error"]["message"].endswith("$.turn: 'no' was expected")
    settings.FLEETSITE = settings.FLEETSITE.model_copy(update={"agent_dispatch_backend": "inline"})
    job = dispatch(validation=fits, objective="another")
    assert job_get(caller=MINE, job_id=job)["result"]["echo"] == "another"
