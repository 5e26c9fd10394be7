"""Validations by real commands and schemas: what they are given, what is kept of them, and that nothing is left."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatch.agents import TurnContext
from dispatch.agents.runner import Stop
from dispatch.outcomes import AgentFailed, CancelledRun, Missed, Succeeded
from tests.dispatch.agents.command.commands import WAIT_S, declared
from tests.dispatch.goals.goals import MemoryGoals, both, ended, goals, looped
from tests.support.processes import until
from tests.support.trees import alive, grown, tree

ALLOWED = ("sh", sys.executable)
SORTS = ["sync", "async"]


def answer(turn: TurnContext) -> Any:
    return {"n": 3}


def sh(text: str, **more: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", text], **more}


def judged(
    place: Path, validation: dict[str, Any], fn: Callable[..., Any] = answer, **more: Any
) -> tuple[Any, dict[str, Any]]:
    """The outcome of a single iteration, and what its validation said."""
    store = goals(validation, **{"max_iterations": 1, **more})
    outcome = ended(looped(fn, store, place, allowed=ALLOWED))
    return outcome, store.committed[0].validation if store.committed else {}


@pytest.mark.parametrize("sort", SORTS)
def test_a_command_passes_by_exit_code_zero_and_its_output_is_kept(tmp_path: Path, sort: str) -> None:
    fn = both(answer)[SORTS.index(sort)]
    outcome, said = judged(tmp_path, sh("echo out; echo err >&2"), fn)
    assert isinstance(outcome, Succeeded)
    assert (said["by"], said["passed"], said["exit_code"], said["timed_out"]) == ("command", True, 0, False)
    assert sorted(said["output"].split()) == ["err", "out"]
    outcome, said = judged(tmp_path, sh("echo no; exit 3"), fn)
    assert outcome == Missed(code="not_validated", message="the last of 1 iterations did not pass its validation: no")
    assert (said["passed"], said["exit_code"], said["output"]) == (False, 3, "no")
    _, said = judged(tmp_path, sh("kill -9 $$"), fn)
    assert (said["passed"], said["exit_code"], said["output"]) == (False, -9, "sh was ended by SIGKILL\n")


def test_it_reads_the_goal_and_the_result_and_finds_the_turns_variables(tmp_path: Path) -> None:
    _, said = judged(tmp_path, sh("cat; env | grep -E '^(FLEETSITE_GOAL|ROLE)' | sort; exit 1"), constraints=["c"])
    first, *variables = said["output"].splitlines()
    assert json.loads(first) == {
        "objective": "reach it",
        "constraints": ["c"],
        "iteration": 1,
        "max_iterations": 1,
        "last_validation": None,
        "last_result": None,
        "result": {"n": 3},
    }
    assert variables == [
        "FLEETSITE_GOAL_FEEDBACK=",
        "FLEETSITE_GOAL_ITERATION=1",
        "FLEETSITE_GOAL_MAX_ITERATIONS=1",
        "ROLE=client",
    ]


def test_it_runs_where_a_python_agent_was_told_and_where_a_command_works(tmp_path: Path) -> None:
    def agent(turn: TurnContext) -> Any:
        assert turn.goal is not None
        assert turn.goal.directory is not None
        (turn.goal.directory / "made").write_text("x")

    outcome, _ = judged(tmp_path, sh("test -e made"), agent)
    assert isinstance(outcome, Succeeded)
    shared = tmp_path / "shared"
    shared.mkdir()
    for number, keys in enumerate(({}, {"cwd": str(shared)})):
        command = declared(tmp_path, "sh", "-c", f"touch at-{number}; cat", **keys)
        store = goals(sh(f"test -e at-{number}"), max_iterations=1)
        outcome = ended(looped(answer, store, tmp_path, allowed=ALLOWED, agent=command))
        assert outcome == Succeeded(result="reach it", state={"seen": [1]}), "its task is the objective"
    assert (shared / "at-1").exists()


def test_a_command_agent_is_told_of_its_goal_by_stdin_and_variables(tmp_path: Path) -> None:
    code = (
        "import json, os, sys; turn = json.load(sys.stdin)\n"
        "turn['goal']['variable'] = os.environ['FLEETSITE_GOAL_FEEDBACK']\n"
        "print(json.dumps({'fleetsite': 'state', 'value': {'n': turn['state'].get('n', 0) + 1}}))\n"
        "print(json.dumps({'fleetsite': 'result', 'value': turn['goal']}))"
    )
    command = declared(tmp_path, sys.executable, "-c", code, stdin="json", output="jsonl")
    store = goals(sh('test "$FLEETSITE_GOAL_ITERATION" = 2 || { echo not yet; exit 1; }'))
    outcome = ended(looped(answer, store, tmp_path, allowed=ALLOWED, agent=command))
    assert isinstance(outcome, Succeeded)
    assert (outcome.result["iteration"], outcome.result["variable"], outcome.state) == (2, "not yet", {"n": 2})
    assert outcome.result["last_validation"]["exit_code"] == 1


@pytest.mark.parametrize(
    "text",
    ["sleep 300 & sleep 300", "trap '' TERM; while :; do sleep 1; done", "cat >/dev/null; sleep 300"],
    ids=["a child", "deaf", "reads"],
)
@pytest.mark.parametrize("sort", SORTS)
def test_a_command_is_ended_with_all_its_processes_when_its_time_is_over(tmp_path: Path, sort: str, text: str) -> None:
    begun = time.monotonic()
    marked = f"echo $$ > {tmp_path}/pid; {text}"
    outcome, said = judged(tmp_path, sh(marked, timeout_s=0.5), both(answer)[SORTS.index(sort)])
    assert time.monotonic() - begun < 0.5 + 2 + 5
    assert (outcome.code, said["timed_out"], said["exit_code"]) == ("not_validated", True, None)
    assert said["output"] == "sh was ended after 0.5 s\n"
    assert _group_is_gone(int((tmp_path / "pid").read_text()))


def _group_is_gone(pid: int) -> bool:
    import os

    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_of_a_flood_the_end_is_kept(tmp_path: Path) -> None:
    flood = "head -c 200000000 /dev/zero | tr '\\000' x; echo; echo the end; exit 1"
    _, said = judged(tmp_path, sh(flood))
    assert said["output"].startswith("[the last 16384 of 2000000")
    assert said["output"].endswith("x\nthe end")
    assert len(said["output"]) < 17_000


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("code", [Stop.CANCELLED, Stop.LOST])
def test_a_run_that_is_told_in_its_validation_ends_it_and_commits_nothing(tmp_path: Path, sort: str, code: str) -> None:
    store = goals({"command": tree(tmp_path)})
    run = looped(both(answer)[SORTS.index(sort)], store, tmp_path, allowed=ALLOWED)
    job = run.lease.job_id
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(ended(run)))
    thread.start()
    until(lambda: grown(tmp_path, job), WAIT_S, "the validation's tree has grown")
    run.stop(code)
    thread.join(WAIT_S)
    assert alive(tmp_path, job) == []
    assert store.committed == []
    assert type(outcomes[0]).__name__ == ("CancelledRun" if code == Stop.CANCELLED else "LeaseGone")


def test_a_run_that_was_told_before_its_validation_began_does_not_begin_it(tmp_path: Path) -> None:
    def agent(turn: TurnContext) -> Any:
        run.stop(Stop.CANCELLED)

    run = looped(agent, goals(sh(f"touch {tmp_path}/ran")), tmp_path, allowed=ALLOWED)
    assert isinstance(ended(run), CancelledRun)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"command": ["rm", "-rf"]}, "this worker's AGENT_VALIDATION_COMMANDS does not allow rm"),
        ({"command": ["/bin/sh", "-c", ":"]}, "this worker's AGENT_VALIDATION_COMMANDS does not allow /bin/sh"),
        ({"command": ["not-there"]}, "validation not-there cannot be started: No such file or directory"),
    ],
)
def test_a_command_that_cannot_be_run_is_an_error_and_no_verdict(
    tmp_path: Path, rule: dict[str, Any], message: str
) -> None:
    store: MemoryGoals = goals(rule)
    outcome = ended(looped(answer, store, tmp_path, allowed=("sh", "not-there")))
    assert outcome == AgentFailed(message=f"ValidationNotRun: {message}")
    assert store.committed == []


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}


@pytest.mark.parametrize("sort", SORTS)
def test_a_schema_passes_a_result_that_fits_and_says_what_does_not(tmp_path: Path, sort: str) -> None:
    at = SORTS.index(sort)
    outcome, said = judged(tmp_path, {"schema": SCHEMA}, both(answer)[at])
    assert isinstance(outcome, Succeeded)
    assert (said["by"], said["passed"], said["exit_code"]) == ("schema", True, None)
    _, said = judged(tmp_path, {"schema": SCHEMA}, both(lambda turn: {"n": 2})[at])
    assert (said["passed"], said["output"]) == (False, "$.n: 2 is less than the minimum of 3")
    _, said = judged(tmp_path, {"schema": SCHEMA}, both(lambda turn: "no object \ud800")[at])
    assert (said["passed"], said["output"]) == (False, "$: 'no object \ufffd' is not of type 'object'")


def test_a_schema_that_goes_round_in_a_circle_or_points_elsewhere_is_an_error(tmp_path: Path) -> None:
    for schema in ({"$ref": "#"}, {"$ref": "http://127.0.0.1:1/schema"}):
        outcome, said = judged(tmp_path, {"schema": schema})
        assert said == {}
        assert isinstance(outcome, AgentFailed)
        assert outcome.message.startswith("ValidationNotRun: the schema cannot be held against the result: ")


def test_a_pattern_that_takes_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatch.agents.goals.validation.SCHEMA_TIMEOUT_S", 2.0)
    slow = {"type": "string", "pattern": "^(a+)+$"}
    _, said = judged(tmp_path, {"schema": slow}, lambda turn: "a" * 60 + "!")
    assert (said["passed"], said["timed_out"]) == (False, True)


def test_two_runs_on_one_loop_do_not_hold_each_other_up(tmp_path: Path) -> None:
    async def agent(turn: TurnContext) -> Any:
        return None

    async def race() -> list[Any]:
        runs = [
            looped(agent, goals(sh(text)), tmp_path / name, allowed=ALLOWED, session_pk=pk)
            for pk, (name, text) in enumerate((("a", "sleep 5"), ("b", "exit 0")), 10)
        ]
        tasks = [asyncio.ensure_future(run.run_async()) for run in runs]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert done == {tasks[1]}
        runs[0].stop(Stop.CANCELLED)
        return [await task for task in (*done, *left)]

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    quick, slow = asyncio.run(race())
    assert (type(quick), type(slow)) == (Succeeded, CancelledRun)
