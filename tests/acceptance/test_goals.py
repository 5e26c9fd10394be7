"""Goals under real workers: killed in the middle, paused, cancelled, out of time; and the documented example."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fleet import ROOT, TTL_S, Fleet, Template, new_session
from tests.support.processes import until
from tests.support.trees import alive, grown, told_at, tree

pytestmark = [pytest.mark.process, pytest.mark.store]

EXAMPLE = ROOT / "docs" / "examples" / "goal_loop"
VALIDATION_GRACE_S, SLACK_S = 2, 3


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trees")


@pytest.fixture(scope="module")
def installation(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(
        tmp_path_factory.mktemp("fleet") / "f",
        template,
        AGENT_MODULES="tests.support.journal_agents,tests.support.goal_agents,mender",
        AGENT_VALIDATION_COMMANDS=f"python3,{sys.executable}",
        PYTHONPATH=f"{EXAMPLE}:{ROOT}",
    ) as fleet:
        yield fleet


def begin(api: Api, *, session: str | None = None, validation: Any = None, **fields: Any) -> str:
    """Dispatch a goal of the agent strive; keywords of its payload: enough, s, deaths, deaf."""
    payload = {key: fields.pop(key) for key in ("enough", "s", "deaths", "deaf") if key in fields}
    fields = {"kind": "goal_loop", "validation": validation or {"check": "enough"}, "max_iterations": 8, **fields}
    return api.dispatch("strive", session, payload=payload, **fields)


def iterations(api: Api, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.ok("iterations", job_id=job_id)["iterations"]
    return found


def begun(fleet: Fleet, job_id: str) -> list[int]:
    """The iterations whose agent began, in order, repetitions too."""
    return [row["iteration"] for row in fleet.journal.events(job_id, "iteration")]


def shown_goals(fleet: Fleet) -> set[str]:
    return {goal["job_id"] for goal in fleet.topology()["goals"]}


def until_begun(fleet: Fleet, job_id: str, iteration: int, within: float = 20) -> None:
    until(lambda: iteration in begun(fleet, job_id), within, f"iteration {iteration} of {job_id} begins")


def test_a_goal_is_left_to_a_worker_that_has_its_check_and_loses_no_attempt(fleet: Fleet, api: Api) -> None:
    more = {"AGENT_MODULES": "tests.support.journal_agents,tests.support.goal_agents,tests.support.elsewhere_agents"}
    fleet.worker(1, env=more).end()  # it has announced its check
    without = fleet.worker(1)
    job = begin(api, validation={"check": "elsewhere"}, max_attempts=1)
    until(lambda: "snooze" in [event["event"] for event in api.job(job)["events"]], 20, "who lacks it leaves it")
    without.end()
    assert begun(fleet, job) == [], "nothing has run"
    fleet.worker(1, env=more)
    done = api.finish([job], 60)[job]
    assert (done["status"], done["attempt"]) == ("succeeded", 1)
    assert begun(fleet, job) == [1]


def test_a_loop_whose_worker_is_killed_goes_on_at_the_next_iteration_and_counts_losses_anew(
    fleet: Fleet, api: Api
) -> None:
    """Three losses with two attempts: no two of them in one iteration."""
    worker = fleet.worker(1)
    session = new_session()
    job = begin(api, session=session, enough=5, deaths={"2": 1, "3": 1, "5": 1}, objective="reach five")
    for _ in range(3):
        worker.wait(TTL_S + 20)
        worker = fleet.worker(1)
    done = api.finish([job], TTL_S + 20)[job]
    assert (done["status"], done["attempt"]) == ("succeeded", 1)
    rows = iterations(api, job)
    assert [(row["iteration"], row["passed"]) for row in rows] == [(n, n == 5) for n in range(1, 6)]
    assert begun(fleet, job) == [1, 2, 2, 3, 3, 4, 5, 5]
    feedback = {row["iteration"]: row["feedback"] for row in fleet.journal.events(job, "iteration")}
    assert feedback == {1: ""} | {n: f"iteration {n - 1} is not enough" for n in range(2, 6)}
    lasts = [row["last"] and row["last"]["iteration"] for row in fleet.journal.events(job, "iteration")]
    assert lasts == [None, 1, 1, 2, 2, 3, 4, 4]
    assert done["result"]["step"]["iteration"] == 5, "each iteration has a step of its own"
    killed_in_five = fleet.journal.events(job, "iteration")[-2]
    assert done["result"]["step"]["nonce"] == killed_in_five["nonce"], "and keeps it over a loss"
    assert done["goal"] == {
        "objective": "reach five",
        "iteration": 5,
        "max_iterations": 8,
        "last_validation": rows[-1]["validation"],
    }
    assert api.get(f"/api/sessions/{session}")["state"]["n"] == 5, "the state of each committed iteration, once"


def test_a_goal_that_is_lost_twice_in_one_iteration_is_dead_and_all_say_so(fleet: Fleet, api: Api) -> None:
    worker, session = fleet.worker(1), new_session()
    job = begin(api, session=session, enough=3, deaths={"2": 9})
    worker.wait(20)
    fleet.worker(1).wait(TTL_S + 20)
    last = fleet.worker(1)
    done = api.finish([job], TTL_S + 15)[job]
    assert (done["status"], done["error"]["code"]) == ("dead_letter", "worker_lost")
    assert (done["goal"]["iteration"], [row["iteration"] for row in iterations(api, job)]) == (1, [1])
    assert api.get(f"/api/sessions/{session}")["status"] == "failed"
    assert job not in shown_goals(fleet)
    assert last.alive


def test_a_paused_loop_is_handed_back_at_its_next_iteration_and_resumes_there(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    session = new_session()
    job = begin(api, session=session, enough=4, s=1)
    until_begun(fleet, job, 1)
    assert api.control("pause", session)[session] == "requested"
    api.until(job, "pending", within=10)
    held = api.job(job)
    assert (held["attempt"], held["explain"]["reason"]) == (0, "session_paused")
    committed = held["goal"]["iteration"]
    assert committed in (1, 2), "the running one is finished, and not many more"
    assert api.get(f"/api/sessions/{session}")["status"] == "paused"
    assert begun(fleet, job) == list(range(1, committed + 1))
    api.control("resume", session)
    done = api.finish([job], 20)[job]
    assert (done["status"], done["attempt"], begun(fleet, job)) == ("succeeded", 1, [1, 2, 3, 4])


def test_cancel_kill_deadline_and_budget_stop_a_loop_inside_an_iteration(fleet: Fleet, api: Api) -> None:
    fleet.worker(1, "--capacity", 4)
    session = new_session()
    cancelled, killed = begin(api, enough=9, s=60), begin(api, session=session, enough=9, s=60)
    late = begin(api, enough=9, s=60, deadline_s=4)
    poor = begin(api, enough=9, s=1, constraints={"max_seconds": 2.5})
    for job in (cancelled, killed):
        until_begun(fleet, job, 1)
    assert ", attempt 1, iteration 1 of 8;" in api.explain(cancelled)["detail"]
    api.ok("cancel", job_id=cancelled)
    api.control("kill", session)
    jobs = api.finish([cancelled, killed, late, poor], 20)
    assert {job: (one["status"], one["error"]["code"]) for job, one in jobs.items()} == {
        cancelled: ("cancelled", "cancelled"),
        killed: ("cancelled", "cancelled"),
        late: ("cancelled", "expired"),
        poor: ("failed", "budget_exceeded"),
    }
    assert [len(fleet.journal.events(job, "told")) for job in jobs] == [1, 1, 1, 1]
    assert [one["goal"]["iteration"] for one in jobs.values()] == [0, 0, 0, 2]
    assert not jobs.keys() & shown_goals(fleet)


def until_gone(witness: Path, job_id: str, within: float) -> None:
    until(lambda: not alive(witness, job_id), within, f"nothing is left of the validation of {job_id}")


def test_nothing_of_a_validation_outlives_its_time_a_cancel_or_its_worker(
    fleet: Fleet, api: Api, witness: Path
) -> None:
    worker = fleet.worker(1, "--capacity", 2)
    rule = {"command": tree(witness)}
    hasty = begin(api, validation={**rule, "timeout_s": 2}, max_iterations=1)
    cancelled = begin(api, validation=rule)
    for job in (hasty, cancelled):
        until(lambda job=job: grown(witness, job), 20, "the tree has grown")  # type: ignore[misc]
    asked = time.monotonic()
    api.ok("cancel", job_id=cancelled)
    jobs = api.finish([hasty, cancelled], 2 + VALIDATION_GRACE_S + SLACK_S + 5)
    assert [job for job in jobs if alive(witness, job)] == [], "each was settled when nothing was left of it"
    assert told_at(witness, cancelled) - asked <= 2.2
    assert (jobs[cancelled]["status"], jobs[cancelled]["goal"]["iteration"]) == ("cancelled", 0)
    assert (jobs[hasty]["status"], jobs[hasty]["error"]["code"]) == ("failed", "not_validated")
    said = jobs[hasty]["goal"]["last_validation"]
    assert (said["timed_out"], said["exit_code"], said["passed"]) == (True, None, False)
    orphan = begin(api, validation=rule)
    until(lambda: grown(witness, orphan), 20, "the tree has grown")
    worker.kill()
    until_gone(witness, orphan, VALIDATION_GRACE_S + SLACK_S)
    assert api.job(orphan)["goal"]["iteration"] == 0


def test_of_a_frozen_worker_neither_validation_nor_iteration_counts(fleet: Fleet, api: Api, witness: Path) -> None:
    first = fleet.worker(1, "--capacity", 2)
    judged = begin(api, validation={"command": tree(witness)}, max_iterations=1)
    job = begin(api, enough=3, s=3, deaf=True)
    until(lambda: grown(witness, judged), 20, "the tree has grown")
    until_begun(fleet, job, 2)
    fleet.freeze(first)
    second = fleet.launch(1, "--capacity", 2)
    until_gone(witness, judged, TTL_S + VALIDATION_GRACE_S + SLACK_S)
    fleet.until_live(second)
    jobs = api.finish([judged, job], TTL_S + 25)
    assert [one["status"] for one in jobs.values()] == ["succeeded", "succeeded"], "its command says again, and passes"
    before = [iterations(api, one) for one in jobs]
    assert jobs[job]["result"]["pid"] == second.pid
    fleet.thaw(first)
    first.wait_for_text("lease is no longer held", 10)
    until(lambda: len(fleet.journal.events(job, "end")) == 4, 10, "the woken agent has ended its iteration")
    assert [iterations(api, one) for one in jobs] == before
    assert [row["iteration"] for row in before[1]] == [1, 2, 3]
    epochs = "SELECT epoch FROM goal_iterations WHERE work_item_id = (SELECT id FROM work_items WHERE job_id = ?)"
    assert fleet.state_sql(f"{epochs} ORDER BY iteration", job) == [(1,), (2,), (2,)]
    assert first.alive


def test_the_documented_example_mends_its_file_until_its_tests_pass(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    body = json.loads((EXAMPLE / "goal.json").read_text())
    assert body.pop("action") == "dispatch"
    job = str(api.ok("dispatch", **body)["job_id"])
    done = api.finish([job], 30)[job]
    assert (done["status"], done["result"]) == ("succeeded", {"did": "mended test_signs"}), done
    rows = iterations(api, job)
    assert [json.loads(row["result_excerpt"])["did"] for row in rows] == [
        "wrote a draft",
        "mended test_lower",
        "mended test_spaces",
        "mended test_signs",
    ]
    assert [row["validation"]["exit_code"] for row in rows] == [1, 1, 1, 0]
    assert "FAIL: test_signs" in rows[2]["validation"]["output"]
