"""One run of a real command: what it is told, what it finds, what comes of how it ends."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dispatch.agents.runner import TurnRun
from dispatch.outcomes import (
    AgentFailed,
    Discarded,
    InputAsked,
    LeaseGone,
    Outcome,
    RetryAsked,
    Snoozed,
    Succeeded,
)
from tests.dispatch.agents.command.commands import SECRET, declared, run, text_of
from tests.dispatch.agents.turn_store import DEADLINE, MemoryTurnStore, lease
from tests.support.processes import until

pytestmark = pytest.mark.process

STATE = {"seen": [1]}


def shell(place: Path, script: str, **keys: Any) -> Outcome:
    return run(declared(place, "sh", "-c", script, **keys))


def result_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Succeeded), outcome
    return outcome.result


def test_the_task_goes_to_stdin_or_to_the_argument_that_asks_for_it(tmp_path: Path) -> None:
    store = MemoryTurnStore()
    by_stdin = run(declared(tmp_path, "cat"), store, task="été\n")
    assert (result_of(by_stdin), text_of(store)) == ("été", "été\n")
    by_argument = declared(tmp_path, "printf", "[%s]", "--task={task}", "{task}!")
    assert result_of(run(by_argument, task="a; rm -rf $HOME")) == "[--task=a; rm -rf $HOME][a; rm -rf $HOME!]"
    assert result_of(run(declared(tmp_path, "cat", "/dev/stdin", stdin="none"))) == ""


def test_a_command_hands_on_the_trace_that_it_runs_in_and_has_none_of_its_own(tmp_path: Path) -> None:
    context = f"00-{'a' * 32}-{'b' * 16}-01"
    printed = declared(tmp_path, "sh", "-c", 'printf %s "${TRACEPARENT-none}"')
    assert result_of(run(printed, traceparent=context)) == context
    assert result_of(run(printed)) == "none"


def test_the_whole_turn_goes_to_stdin_as_json(tmp_path: Path) -> None:
    told = json.loads(
        result_of(
            run(
                declared(tmp_path, "cat", stdin="json"),
                MemoryTurnStore(answer="blue"),
                resumed=True,
                checkpoint={"at": 3},
                deadline=DEADLINE,
            )
        )
    )
    assert told == {
        "agent_name": "tested",
        "attempt": 1,
        "checkpoint": {"at": 3},
        "deadline": DEADLINE.isoformat(),
        "goal": None,
        "idempotency_key": "orch-" + "a" * 32 + ":4",
        "job_id": "orch-" + "a" * 32,
        "payload": {"n": 1},
        "reply": "blue",
        "session_id": "s-1",
        "state": STATE,
        "task": "do it",
        "tenant": "t1",
        "turn_number": 2,
    }


def test_the_environment_is_the_common_variables_the_allowed_the_fixed_and_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ALLOWED", "HIDDEN", SECRET, "STATE_DB_URI"):
        monkeypatch.setenv(name, f"value of {name}")
    fixed = {"LANG": "C", "MODE": "a b"}
    agent = declared(tmp_path, "env", env_allow=["ALLOWED", "NOT_SET"], env_set=fixed)
    lines = result_of(run(agent, MemoryTurnStore(answer="blue"), resumed=True)).splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert {name: found.pop(name) for name in ("ALLOWED", "LANG", "MODE", "ROLE")} == {
        "ALLOWED": "value of ALLOWED",
        "LANG": "C",
        "MODE": "a b",
        "ROLE": "client",
    }
    assert {name for name in found if not name.startswith("FLEETSITE_")} <= {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
    }
    assert {name: value for name, value in found.items() if name.startswith("FLEETSITE_")} == {
        "FLEETSITE_AGENT": "tested",
        "FLEETSITE_ATTEMPT": "1",
        "FLEETSITE_IDEMPOTENCY_KEY": "orch-" + "a" * 32 + ":4",
        "FLEETSITE_JOB_ID": "orch-" + "a" * 32,
        "FLEETSITE_REPLY": "blue",
        "FLEETSITE_SESSION_ID": "s-1",
        "FLEETSITE_TENANT": "t1",
        "FLEETSITE_TURN_NUMBER": "2",
    }


def test_a_session_keeps_its_directory_and_shares_it_with_no_other(tmp_path: Path) -> None:
    agent = declared(tmp_path, "sh", "-c", "cat >>kept; cat kept; pwd >&2; stat -c %a . >&2; exit 3")
    seen = []
    turns: list[tuple[str, dict[str, Any]]] = [
        ("a", {}),
        ("b", {}),
        ("c", {"session_id": "S-1"}),
        ("d", {"tenant": "t2"}),
        ("e", {"session_pk": 4}),  # deleted, and begun anew
        ("f", {"session_id": ".."}),
        ("g", {"session_id": "x" * 200}),
    ]
    for task, changes in turns:
        store = MemoryTurnStore()
        outcome = run(agent, store, task=task, **changes)
        assert isinstance(outcome, AgentFailed)
        place, mode = outcome.message.partition(": sh ended with exit code 3: ")[2].splitlines()
        assert (Path(place).parent, mode) == (tmp_path / "workdirs", "700")
        seen.append(text_of(store))
    assert seen == ["a", "ab", "c", "d", "e", "f", "g"]
    kept = len(list((tmp_path / "workdirs").iterdir()))
    assert "/workdirs/empty-3-" in result_of(run(declared(tmp_path, "pwd"), session_id="empty"))
    assert len(list((tmp_path / "workdirs").iterdir())) == kept, "one in which nothing was left goes with the turn"
    fixed = declared(tmp_path, "pwd", cwd=str(tmp_path))
    assert result_of(run(fixed)) == str(tmp_path)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, Succeeded(result="out", state=STATE)),
        (2, Succeeded(result="out", state=STATE)),
        (75, RetryAsked(after_s=7, message="CommandFailed: sh asked for a retry by exit code 75: why")),
        (64, Discarded(reason="sh ended with exit code 64: why")),
        (80, Snoozed(after_s=30)),
        (1, AgentFailed(message="CommandFailed: sh ended with exit code 1: why")),
    ],
)
def test_the_file_says_what_an_exit_code_means(tmp_path: Path, code: int, outcome: Outcome) -> None:
    codes = {"success": [0, 2], "retry": [75], "discard": [64], "snooze": [80]}
    script = f"echo out; echo why >&2; exit {code}"
    assert shell(tmp_path, script, exit_codes=codes, retry_after_s=7, snooze_s=30) == outcome


def test_what_cannot_be_started_or_is_killed_says_so(tmp_path: Path) -> None:
    assert run(declared(tmp_path, "no-such-program")) == AgentFailed(
        message="CommandFailed: no-such-program cannot be started: No such file or directory"
    )
    assert run(declared(tmp_path, "cat", cwd="/no/such/place")) == AgentFailed(
        message="CommandFailed: cat cannot be started in its directory: No such file or directory"
    )
    assert shell(tmp_path, "kill -SEGV $$") == AgentFailed(message="CommandFailed: sh was ended by SIGSEGV")
    too_long = run(declared(tmp_path, "echo", "{task}"), task="x" * 300_000)
    assert isinstance(too_long, Discarded)
    assert "too long for an argument list" in too_long.reason


LINES = """
import json, os, sys
turn = json.load(sys.stdin)
say = lambda kind, **more: print(json.dumps({"fleetsite": kind, **more}), flush=True)
say("output", text="thinking\\n")
print("plain")
for n in range(1000):
    say("progress", done=n, total=1000)
    say("checkpoint", value={"at": n})
if turn["reply"] is None:
    say("needs_input", question="which?", choices=["a", "b"])
    sys.exit(5)
say("state", value={"n": turn["state"]["seen"] + [turn["turn_number"]]})
say("result", value={"reply": turn["reply"]}, message="well")
"""


def test_lines_carry_output_progress_checkpoint_state_result_and_questions(tmp_path: Path) -> None:
    agent = declared(tmp_path, sys.executable, "-c", LINES, output="jsonl", stdin="json")
    store = MemoryTurnStore()
    assert run(agent, store) == InputAsked(question="which?", choices=("a", "b"))
    assert text_of(store) == "thinking\nplain\n"
    assert store.checkpoints[-1] == {"at": 999}
    assert [data for kind, data in store.chunks if kind == "progress"][-1] == {
        "done": 999,
        "total": 1000,
        "message": "",
    }
    assert len(store.checkpoints) < 20, "only the newest of a batch is written"
    store.answer = "a"
    assert run(agent, store, resumed=True) == Succeeded(result={"reply": "a"}, state={"n": [1, 2]}, message="well")


def test_a_wrong_line_ends_the_command_and_the_attempt(tmp_path: Path) -> None:
    script = """echo '{"fleetsite": "progress"}'; sleep 100"""
    assert shell(tmp_path, script, output="jsonl") == AgentFailed(
        message="BadLine: line 1 of stdout, fleetsite: progress, lacks done"
    )
    big = declared(tmp_path, "cat", output="jsonl")
    refused = run(big, task=json.dumps({"fleetsite": "checkpoint", "value": "x" * 1_100_000}))
    assert isinstance(refused, AgentFailed)
    assert "a checkpoint has at most 1048576 bytes" in refused.message


def test_stdout_can_be_one_json_value(tmp_path: Path) -> None:
    assert result_of(shell(tmp_path, """echo '{"a": [1]}'""", output="json")) == {"a": [1]}
    for script, named in [("echo a", "not JSON"), ("true", "not JSON"), ("seq 1000", "is no whole JSON")]:
        outcome = shell(tmp_path, script, output="json", output_limit_bytes=1000)
        assert isinstance(outcome, AgentFailed)
        assert named in outcome.message


def test_hostile_output_is_cleaned(tmp_path: Path) -> None:
    store = MemoryTurnStore()
    outcome = run(declared(tmp_path, "printf", r"a\000b\377\355\240\200c"), store)
    assert result_of(outcome)["_cleaned"] == ["nul"]
    assert text_of(store).startswith("a\ufffdb\ufffd")
    assert text_of(store).isprintable()
    failed = shell(tmp_path, r"printf 'a\000b\377' >&2; exit 1")
    assert failed == AgentFailed(message="CommandFailed: sh ended with exit code 1: a\ufffdb\ufffd")


def test_a_flood_is_read_and_cut_and_the_loop_goes_on(tmp_path: Path) -> None:
    store = MemoryTurnStore()
    flood = (
        "head -c 200000000 /dev/zero | tr '\\0' x; head -c 20000000 /dev/zero | tr '\\0' e >&2; echo end >&2; exit 1"
    )
    outcome = run(declared(tmp_path, "sh", "-c", flood, output_limit_bytes=100_000), store)
    assert isinstance(outcome, AgentFailed)
    assert outcome.message.endswith("eeeend")
    assert len(outcome.message) < 4000
    assert text_of(store) == "x" * 100_000 + "\n[output beyond 100000 bytes is not kept]\n"
    whole = shell(tmp_path, "head -c 150000 /dev/zero | tr '\\0' x", output_limit_bytes=100_000)
    assert result_of(whole) == {"truncated": True, "bytes": 150_000, "preview": "x" * 16 * 1024}


def test_closing_stdout_or_leaving_it_to_a_child_holds_nothing_up(tmp_path: Path) -> None:
    assert result_of(shell(tmp_path, "echo a; exec >&- 2>&-; test ! -e /dev/fd/1")) == "a"
    left = "echo a; (trap '' TERM; exec sleep 100) & setsid sleep 100 & :"
    assert result_of(shell(tmp_path, left, stop_grace_s=0.2)) == "a"


def test_output_is_streamed_while_the_command_runs(tmp_path: Path) -> None:
    """The command ends only when it sees that what it said has arrived."""
    arrived = tmp_path / "arrived"

    class Store(MemoryTurnStore):
        def emit(self, lease: Any, kind: str, data: dict[str, Any]) -> None:
            super().emit(lease, kind, data)
            arrived.touch()

    script = f"echo first; until test -e {arrived}; do sleep 0.01; done; echo second"
    store = Store()
    assert result_of(run(declared(tmp_path, "sh", "-c", script), store)) == "first\nsecond"
    assert [data["text"] for _, data in store.chunks] == ["first\n", "second\n"]


def test_a_store_that_is_away_for_a_moment_loses_nothing_and_a_lost_lease_ends_the_command(tmp_path: Path) -> None:
    class Store(MemoryTurnStore):
        away = True

        def emit(self, lease: Any, kind: str, data: dict[str, Any]) -> None:
            if self.away:
                self.away = False
                raise ConnectionError("away")
            super().emit(lease, kind, data)

    store = Store()
    assert result_of(run(declared(tmp_path, "echo", "a"), store)) == "a"
    assert text_of(store) == "a\n"
    lost = MemoryTurnStore(current_epoch=2)
    assert run(declared(tmp_path, "sh", "-c", "echo a; sleep 100"), lost) == LeaseGone()


def test_waiting_for_commands_takes_no_threads(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    agent = declared(tmp_path, "sh", "-c", f"touch {tmp_path}/begun.$$; until test -e {gate}; do sleep 0.2; done")

    async def main() -> tuple[int, list[Outcome]]:
        runs = [TurnRun(lease(session_pk=n), agent, MemoryTurnStore()) for n in range(40)]
        tasks = [asyncio.create_task(one.run_async()) for one in runs]
        await asyncio.to_thread(until, lambda: len(list(tmp_path.glob("begun.*"))) == 40, 30, "all have begun")
        threads = threading.active_count()
        gate.touch()
        return threads, await asyncio.gather(*tasks)

    before = threading.active_count()
    threads, outcomes = asyncio.run(main())
    assert threads - before < 15
    assert outcomes == [Succeeded(result="", state=STATE)] * 40
