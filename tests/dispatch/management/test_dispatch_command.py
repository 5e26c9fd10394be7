"""`manage.py dispatch`: the service of REST, a tail to the job's end, and exit codes for scripts."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
from django.core.management import call_command

from dispatch import selectors, wiring
from dispatch.access import Caller
from dispatch.management.tail import JobTail
from dispatch.models import WorkItem
from dispatch.states import Verb
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

MINE = Caller(tenant="t1", name="me", kind="api_key", scopes=frozenset({"read", "dispatch"}))


def run(*arguments: str) -> tuple[int, str, str]:
    """(exit code, what it printed, what it complained of)."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("dispatch", *arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def ended(verb: str, **more: Any) -> list[str]:
    """Arguments that lead to a job which ended so: its key was used before."""
    code, out, _ = run("do it", "--tenant", "t1", "--idempotency-key", "k", "--json")
    assert code == 0
    world.run(WorkItem.objects.get(job_id=json.loads(out)["job_id"]), verb, **more)
    return ["do it", "--tenant", "t1", "--idempotency-key", "k", "--wait"]


def test_every_field_becomes_the_jobs() -> None:
    _, out, _ = run("first", "--tenant", "t1", "--json")
    first = json.loads(out)["job_id"]
    code, out, err = run(
        *("do it", "--tenant", "t1", "--agent", "echo", "--session", "s", "--priority", "high", "--after", first),
        *("--payload", '{"n": 1}', "--metadata", '{"team": "ops"}', "--max-attempts", "2", "--deadline-s", "60.5"),
        *("--run-at", "2090-01-31T08:00:00Z", "--on-worker-lost", "fail", "--on-busy", "reject", "--json"),
    )
    assert (code, err) == (0, ""), out
    handle = json.loads(out)
    job = selectors.job_get(caller=MINE, job_id=handle["job_id"])
    assert handle["session_id"] == job["session_id"] == "s"
    assert (job["task"], job["agent_name"], job["priority"], job["max_attempts"]) == ("do it", "echo", "high", 2)
    assert (job["dependencies"], job["metadata"], job["run_at"]) == ([first], {"team": "ops"}, "2090-01-31T08:00:00Z")
    item = WorkItem.objects.get(job_id=handle["job_id"])
    assert (item.payload, item.on_worker_lost) == ({"n": 1}, "fail")
    assert item.deadline is not None


def test_people_read_its_id_and_session() -> None:
    code, out, _ = run("do it", "--tenant", "t1", "--session", "s")
    assert (code, out) == (0, f"{WorkItem.objects.get().job_id} in session s\n")


def test_the_task_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    assert run("-", "--tenant", "t1")[0] == 0
    assert WorkItem.objects.get().task == "from a pipe\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["do it"], "tenant"),
        (["", "--tenant", "t1"], "task"),
        (["do it", "--tenant", "t1", "--agent", "nobody"], "nobody"),
        (["do it", "--tenant", "t1", "--payload", "[1]"], "payload"),
        (["do it", "--tenant", "t1", "--payload", "{"], "payload"),
        (["do it", "--tenant", "t1", "--deadline-s", "soon"], "deadline_s"),
        (["do it", "--tenant", "t1", "--max-attempts", "0"], "max_attempts"),
        (["do it", "--tenant", "t1", "--timeout", "1"], "timeout"),
        *((["do it", "--tenant", "t1", "--wait", "--timeout", wrong], "timeout") for wrong in ("x", "nan", "-1")),
        (["do it", "--tenant", "t1", "--after", "orch-" + "0" * 32], "dependenc"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_dispatched(arguments: list[str], named: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert named in err
    assert not WorkItem.objects.exists()
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (2, "")
    assert json.loads(out)["status"] == "error"


def test_a_refusal_is_2_as_well() -> None:
    run("do it", "--tenant", "t1", "--session", "s")
    code, _, err = run("do it", "--tenant", "t1", "--session", "s", "--on-busy", "reject")
    assert code == 2
    assert "unfinished" in err


def test_success_is_0_with_its_result_and_each_line_of_json_is_an_object() -> None:
    arguments = ended(Verb.SUCCEEDED, result={"n": "\x1b[2J"})
    code, out, _ = run(*arguments)
    assert code == 0
    assert out.splitlines()[-4:] == ["result", "{", '  "n": "\\u001b[2J"', "}"]
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    handle, *events, last = map(json.loads, out.splitlines())
    assert last == selectors.job_result(caller=MINE, job_id=handle["job_id"])
    assert [event["data"]["event"] for event in events] == ["submitted", "running", "succeeded"]


@pytest.mark.parametrize("verb", [Verb.FAILED, Verb.CANCELLED, Verb.DEAD_LETTER])
def test_another_end_is_1(verb: str) -> None:
    assert run(*ended(verb, code="agent_error", message="it broke"))[0] == 1


def test_a_question_is_3_and_is_shown() -> None:
    code, out, err = run(*ended(Verb.SUSPEND, code="input", question="which colour?"))
    assert code == 3
    assert "suspend: input" in out
    assert "which colour?" in err


def test_a_wait_for_child_jobs_is_followed_on_and_the_time_over_is_124() -> None:
    run("child", "--tenant", "t1")
    child = WorkItem.objects.get()
    arguments = ended(Verb.SUSPEND, code="children", wait_for=(child.job_id,))
    code, _, err = run(*arguments, "--timeout", "0.1")
    assert code == 124
    assert "goes on" in err


def test_a_job_that_never_stops_talking_is_left_when_the_time_is_over() -> None:
    run("do it", "--tenant", "t1")
    lease = world.claim_item(WorkItem.objects.get())
    clock = iter(range(1000))

    def talk(_: object) -> None:
        wiring.turn_store().emit(lease, "text", {"text": "more"})

    tail = JobTail(caller=MINE, job_id=lease.job_id, tell=talk, clock=lambda: float(next(clock)))
    assert tail.follow(within=5) == "running"
