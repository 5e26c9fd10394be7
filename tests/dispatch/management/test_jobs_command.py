"""`manage.py jobs`: the same answers, rules and audit as REST."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from dispatch import selectors, services, wiring
from dispatch.access import Caller
from dispatch.management.tail import JobTail
from dispatch.models import WorkItem
from dispatch.specs import DispatchSpec
from dispatch.states import Verb
from sessions_app.models import AuditEntry, Goal
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

MINE = Caller(tenant="t1", name="me", kind="api_key", scopes=frozenset({"read", "dispatch"}))
NOBODY = "orch-" + "0" * 32


def dispatch(tenant: str = "t1", **body: Any) -> WorkItem:
    caller = Caller(tenant=tenant, name="me", kind="api_key", scopes=frozenset({"dispatch"}))
    spec = DispatchSpec.parse({"task": "do it", "agent_name": "echo", **body})
    return WorkItem.objects.get(job_id=services.job_dispatch(caller=caller, spec=spec).handle["job_id"])


def jobs(*arguments: str) -> tuple[int, str, str]:
    """(exit code, what it printed, what it complained of)."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("jobs", *arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def body(*arguments: str) -> Any:
    code, out, err = jobs(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_list_is_that_of_rest_and_the_platform_sees_every_tenant() -> None:
    first, second = dispatch(), dispatch("t2")
    assert body("list") == selectors.job_list(caller=Caller(**{**vars(MINE), "platform": True}))
    assert [job["job_id"] for job in body("list", "--tenant", "t1")["jobs"]] == [first.job_id]
    code, text, _ = jobs("list")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == ["JOB", second.job_id, first.job_id]


def test_a_page_names_the_cursor_of_the_next() -> None:
    first, second = dispatch(), dispatch()
    _, text, _ = jobs("list", "--limit", "1")
    assert second.job_id in text
    assert first.job_id not in text
    cursor = text.split("--cursor ")[1].strip()
    assert [job["job_id"] for job in body("list", "--cursor", cursor)["jobs"]] == [first.job_id]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("list", "--status", "asleep"), "status"),
        (("list", "--limit", "many"), "limit"),
        (("list", "--limit", "501"), "limit"),
        (("list", "--cursor", "x"), "cursor"),
        (("list", "--tenant", "no tenant"), "tenant"),
        (("retry", NOBODY, "--deadline-s", "-1"), "deadline_s"),
    ],
)
def test_a_wrong_argument_is_one_sentence_that_names_it_and_exit_2(arguments: tuple[str, ...], named: str) -> None:
    code, out, err = jobs(*arguments)
    assert (code, out) == (2, "")
    assert named in err
    code, out, err = jobs(*arguments, "--json")
    assert (code, err) == (2, "")
    assert named in str(json.loads(out))


def test_a_verb_that_is_none_is_a_wrong_call() -> None:
    with pytest.raises(CommandError, match="dance"):
        call_command("jobs", "dance")


def test_one_job_is_that_of_rest_and_harmless_on_a_terminal() -> None:
    item = dispatch(task="say \x1b[2J this", metadata={"team": "ops"})
    world.run(item, Verb.FAILED, code="agent_error", message="it \x1b[1m broke")
    assert body("show", item.job_id) == selectors.job_get(caller=MINE, job_id=item.job_id)
    code, text, _ = jobs("show", item.job_id)
    assert code == 0
    assert "\x1b" not in text
    for part in ("failed", "this", "agent_error: it", "team", "submitted"):
        assert part in text


def test_of_a_goal_it_tells_how_far_it_is() -> None:
    item = dispatch(kind="goal_loop", max_iterations=4)
    assert "iterations  0 of 4\n" in _spaced(jobs("show", item.job_id)[1])
    for passed, words in ((False, "the last one did not pass"), (True, "the last one passed")):
        Goal.objects.filter(work_item_id=item.pk).update(iteration=2, last_validation={"passed": passed})
        assert f"iterations  2 of 4, {words}\n" in _spaced(jobs("show", item.job_id)[1])


def _spaced(text: str) -> str:
    """With two spaces between the columns."""
    return re.sub(r" {2,}", "  ", text)


@pytest.mark.parametrize("verb", ["show", "cancel", "retry", "explain", "tail"])
@pytest.mark.parametrize("name", [NOBODY, "no-job-id"])
def test_a_job_that_is_not_there_is_refused_with_exit_3(verb: str, name: str) -> None:
    code, out, err = jobs(verb, name)
    assert (code, out) == (3, "")
    assert f"Job {name} not found" in err
    code, out, _ = jobs(verb, name, "--json")
    assert (code, json.loads(out)) == (3, {"status": "not_found", "error": f"Job {name} not found"})


def test_a_tenant_does_not_reach_anothers_job() -> None:
    item = dispatch("t2")
    assert jobs("cancel", item.job_id, "--tenant", "t1")[0] == 3
    assert world.fresh(item).status == "ready"


def test_cancel_says_what_came_of_it_and_is_audited_with_its_reason() -> None:
    item = dispatch()
    assert body("cancel", item.job_id, "--reason", "enough") == {
        "job_id": item.job_id,
        "status": "cancelled",
        "cancel": "done",
    }
    entry = AuditEntry.objects.get(verb="cancel")
    assert (entry.actor_kind, entry.object_id, entry.reason) == ("command_line", item.job_id, "enough")
    assert entry.tenant == "t1"
    assert entry.actor
    code, text, _ = jobs("cancel", item.job_id)
    assert (code, text) == (0, f"{item.job_id} had ended as cancelled.\n")


def test_retry_makes_it_wait_again_and_is_refused_while_it_waits() -> None:
    item = dispatch()
    assert jobs("retry", item.job_id)[0] == 3
    world.run(item, Verb.FAILED, code="agent_error")
    assert body("retry", item.job_id, "--deadline-s", "60.5")["status"] == "pending"
    again = world.fresh(item)
    assert again.status == "ready"
    assert again.deadline is not None
    world.run(item, Verb.FAILED, code="agent_error")
    assert "waits again" in jobs("retry", item.job_id)[1]


def test_explain_is_that_of_rest() -> None:
    item, behind = dispatch(session_id="s"), dispatch(session_id="s")
    assert body("explain", behind.job_id) == selectors.job_explain(caller=MINE, job_id=behind.job_id)
    _, text, _ = jobs("explain", behind.job_id)
    assert ["blocked", "by", item.job_id] in [line.split() for line in text.splitlines()]


# -- tail --------------------------------------------------------------------------------------------------------------
def test_the_tail_of_a_job_that_has_ended_tells_it_whole_and_how_it_ended() -> None:
    item = dispatch()
    lease = world.claim_item(item)
    store = wiring.turn_store()
    store.emit(lease, "text", {"text": "one\x1b[2J\ntwo"})
    store.emit(lease, "progress", {"done": 1, "total": 2, "message": "half"})
    world.end(lease, Verb.SUCCEEDED, result={"n": 1})
    code, text, _ = jobs("tail", item.job_id)
    assert code == 0
    lines = [line.partition("] ")[2] or line for line in text.splitlines()]
    assert lines == ["submitted", "running", "one\ufffd[2J", "two", "1 of 2 half", "succeeded"]
    _, out, _ = jobs("tail", item.job_id, "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in told] == ["timeline", "timeline", "text", "progress", "timeline"]
    assert told[3]["data"] == {"done": 1, "total": 2, "message": "half", "epoch": 1}
    assert [event["at"] for event in told] == sorted(event["at"] for event in told)


def test_a_job_that_ended_otherwise_is_exit_1() -> None:
    item = world.run(dispatch(), Verb.FAILED, code="agent_error", message="it broke")
    code, text, _ = jobs("tail", item.job_id)
    assert code == 1
    assert text.splitlines()[-1].endswith("failed: agent_error: it broke")


def test_new_leaves_out_what_was_told_before() -> None:
    item = world.run(dispatch(), Verb.SUCCEEDED)
    assert jobs("tail", item.job_id, "--new") == (0, "", "")


def test_a_tail_tells_each_thing_once_while_it_happens() -> None:
    item = dispatch()
    told: list[str] = []
    acts = iter(["claim", "emit", "end"])

    def meanwhile(_: float) -> None:
        step = next(acts)
        if step == "claim":
            leases.append(world.claim_item(item))
        elif step == "emit":
            wiring.turn_store().emit(leases[0], "text", {"text": "hello"})
        else:
            world.end(leases[0], Verb.SUCCEEDED)

    leases: list[Any] = []
    tail = JobTail(
        caller=MINE,
        job_id=item.job_id,
        tell=lambda event: told.append(event["data"].get("text") or event["data"]["event"]),
        sleep=meanwhile,
    )
    assert tail.follow() == "succeeded"
    assert told == ["submitted", "running", "hello", "succeeded"]
