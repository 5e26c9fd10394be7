"""Reads: in the caller's own tenant, by pages that hold still, and with nothing in them that a caller must not see."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from dispatch import selectors, states
from dispatch.access import Caller
from dispatch.clock import store_now
from dispatch.errors import Invalid, JobNotFound, SessionNotFound
from dispatch.models import OutputChunk, WorkItem
from dispatch.states import Verb
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

ALL = frozenset({"read", "dispatch", "operate"})
MINE = Caller(tenant="t1", name="me", kind="api_key", scopes=ALL)
THEIRS = Caller(tenant="t2", name="they", kind="api_key", scopes=ALL)
PLATFORM = Caller(tenant="ops", name="root", kind="api_key", scopes=ALL, platform=True)

BY_JOB: list[Callable[..., Any]] = [
    selectors.job_status,
    selectors.job_result,
    selectors.job_explain,
    selectors.job_events,
    selectors.job_get,
    lambda **more: selectors.job_wait(timeout_s=0, **more),
    lambda **more: selectors.job_chunks(after=0, **more),
]
JOB_NAMES = ["status", "result", "explain", "events", "get", "wait", "chunks"]


# -- tenancy -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("read", BY_JOB, ids=JOB_NAMES)
def test_another_tenants_job_is_not_found_and_neither_is_an_unknown_one(read: Callable[..., Any]) -> None:
    item = world.run(world.add())
    read(caller=MINE, job_id=item.job_id)
    read(caller=PLATFORM, job_id=item.job_id)
    for caller, job_id in ((THEIRS, item.job_id), (MINE, "orch-" + "0" * 32), (MINE, "")):
        with pytest.raises(JobNotFound) as refusal:
            read(caller=caller, job_id=job_id)
        assert refusal.value.message == f"Job {job_id} not found"


def test_a_caller_without_a_tenant_sees_nothing() -> None:
    item = world.add()
    nobody = Caller(tenant="", name="x", kind="api_key", scopes=ALL)
    with pytest.raises(JobNotFound):
        selectors.job_status(caller=nobody, job_id=item.job_id)
    assert selectors.job_list(caller=nobody)["jobs"] == []
    assert selectors.session_list(caller=nobody)["sessions"] == []


def test_lists_show_a_caller_its_own_tenant_and_a_platform_caller_all() -> None:
    mine, theirs = world.add("same"), world.add("same", tenant="t2")
    for caller, jobs in ((MINE, [mine]), (THEIRS, [theirs]), (PLATFORM, [theirs, mine])):
        assert [job["job_id"] for job in selectors.job_list(caller=caller)["jobs"]] == [j.job_id for j in jobs]
        assert len(selectors.session_list(caller=caller)["sessions"]) == len(jobs)
        found = selectors.job_list(caller=caller, session_id="same")["jobs"]
        assert len(found) == len(jobs)


def test_two_tenants_with_the_same_session_id_have_two_sessions() -> None:
    world.run(world.add("same"), state={"whose": "mine"})
    world.run(world.add("same", tenant="t2"), state={"whose": "theirs"})
    for caller, whose in ((MINE, "mine"), (THEIRS, "theirs")):
        assert selectors.session_get(caller=caller, session_id="same")["state"] == {"whose": whose}
        assert len(selectors.session_turns(caller=caller, session_id="same")["turns"]) == 1


@pytest.mark.parametrize("read", [selectors.session_get, selectors.session_turns])
def test_another_tenants_session_is_not_found(read: Callable[..., Any]) -> None:
    world.add("theirs", tenant="t2")
    for session_id in ("theirs", "nobodys"):
        with pytest.raises(SessionNotFound):
            read(caller=MINE, session_id=session_id)
    read(caller=PLATFORM, session_id="theirs")


def test_control_finds_only_the_callers_own_sessions_by_every_way() -> None:
    mine, theirs = world.add("a"), world.add("b", tenant="t2")
    ways: list[dict[str, Any]] = [
        {"session_ids": ["a", "b", "c"], "domain": None, "filter": None},
        {"session_ids": None, "domain": None, "filter": {"status": "active"}},
        {"session_ids": None, "domain": None, "filter": {"agent_name": "echo"}},
    ]
    for way in ways:
        assert [s.pk for s in selectors.sessions_for_control(MINE, **way)] == [mine.session_id]
        assert [s.pk for s in selectors.sessions_for_control(THEIRS, **way)] == [theirs.session_id]
    assert selectors.sessions_for_control(MINE, session_ids=None, domain="t2", filter=None) == []


def test_nothing_that_is_answered_holds_lease_material() -> None:
    item = world.add()
    lease = world.claim_item(item, "a-secret-token-of-32-characters!")
    answers = [read(caller=MINE, job_id=item.job_id) for read in BY_JOB]
    answers += [selectors.job_list(caller=MINE), selectors.session_get(caller=MINE, session_id="s")]
    answers += [selectors.session_turns(caller=MINE, session_id="s")]
    text = json.dumps(answers)
    assert lease.owner not in text
    for word in ("owner", "epoch", "token", "lease_expires"):
        assert f'"{word}' not in text


# -- one job -----------------------------------------------------------------------------------------------------------
def test_a_status_has_exactly_its_keys_and_a_result_reference_once_there_is_one() -> None:
    item = world.add()
    pending = {"kind": "orchestrator_task", "status": "pending", "payload_ref": item.job_id}
    assert selectors.job_status(caller=MINE, job_id=item.job_id) == pending
    world.run(item, result="done")
    status = selectors.job_status(caller=MINE, job_id=item.job_id)
    assert re.fullmatch(r"outcome:\d+", status.pop("result_ref"))
    assert status == {**pending, "status": "succeeded"}


def test_the_result_is_that_of_the_current_life_of_a_job() -> None:
    item = world.run(world.add(), Verb.FAILED, code="agent_error", message="it broke")
    failed = selectors.job_result(caller=MINE, job_id=item.job_id)
    assert failed["error"] == {"code": "agent_error", "message": "it broke"}
    world.authority().transitions.retry(item.pk)
    reopened = selectors.job_result(caller=MINE, job_id=item.job_id)
    assert (reopened["status"], reopened["result"], reopened["error"]) == ("pending", None, None)
    assert "result_ref" not in selectors.job_status(caller=MINE, job_id=item.job_id)
    world.run(item, result={"n": 1})
    ended = selectors.job_result(caller=MINE, job_id=item.job_id)
    assert ended.keys() == {"job_id", "status", "result", "error", "attempt", "finished_at", "usage"}
    assert (ended["status"], ended["result"], ended["error"], ended["attempt"]) == ("succeeded", {"n": 1}, None, 1)


def test_a_job_is_shown_with_every_field_of_the_contract_and_json_ready() -> None:
    parent = world.run(world.add("p"))
    item = world.add(dependencies=[parent.job_id], metadata={"team": "x"}, priority=0)
    job = selectors.job_get(caller=MINE, job_id=item.job_id)
    fields = (
        "job_id session_id kind agent_name status priority session_seq attempt max_attempts dependencies metadata "
        "created_at run_at deadline started_at finished_at cancel_requested_at payload_ref result_ref result error "
        "explain events"
    )
    assert set(fields.split()) <= job.keys()
    assert (job["dependencies"], job["metadata"], job["priority"]) == ([parent.job_id], {"team": "x"}, "critical")
    assert job["created_at"].endswith("Z")
    json.dumps(job)
    (listed,) = selectors.job_list(caller=MINE, session_id="s")["jobs"]
    assert not {"result", "explain", "events"} & listed.keys()


def test_the_timeline_is_told_oldest_first() -> None:
    item = world.add()
    world.rescue(world.claim_item(item))
    world.run(item)
    events = selectors.job_events(caller=MINE, job_id=item.job_id)["events"]
    assert [(e["event"], e["from"], e["to"]) for e in events] == [
        ("submitted", None, "ready"),
        ("running", "ready", "running"),
        ("rescued", "running", "ready"),
        ("running", "ready", "running"),
        ("succeeded", "running", "succeeded"),
    ]
    assert all(event.keys() == {"at", "event", "from", "to", "attempt", "worker", "reason"} for event in events)


def test_waiting_answers_at_the_end_of_the_job_or_of_the_time() -> None:
    item = world.add()
    begun = time.monotonic()
    assert selectors.job_wait(caller=MINE, job_id=item.job_id, timeout_s=0.2)["status"] == "pending"
    assert time.monotonic() - begun >= 0.2

    def end() -> None:
        world.run(item)
        connection.close()

    thread = threading.Thread(target=end)
    thread.start()
    answer = selectors.job_wait(caller=MINE, job_id=item.job_id, timeout_s=30)
    thread.join(30)
    assert answer["status"] == "succeeded"
    assert time.monotonic() - begun < 20


def test_output_is_told_in_order_after_an_id() -> None:
    item = world.add()
    chunks = [
        OutputChunk.objects.create(work_item=item, epoch=1, kind="text", data={"text": str(n)}, at=store_now())
        for n in range(5)
    ]
    told = selectors.job_chunks(caller=MINE, job_id=item.job_id, after=chunks[1].pk)
    assert [chunk["data"]["text"] for chunk in told] == ["2", "3", "4"]
    assert selectors.job_chunks(caller=MINE, job_id=item.job_id, after=chunks[4].pk) == []


# -- pages -------------------------------------------------------------------------------------------------------------
def _all(
    read: Callable[..., dict[str, Any]], name: str, key: str, between: Callable[[], object], **more: Any
) -> list[str]:
    seen, cursor = [], None
    while True:
        page = read(caller=MINE, limit=3, cursor=cursor, **more)
        seen += [row[key] for row in page[name]]
        cursor = page["next_cursor"]
        if cursor is None:
            return seen
        between()


def test_pages_of_jobs_show_each_once_while_new_ones_come_and_old_ones_end() -> None:
    items = [world.add(f"s{n}") for n in range(10)]

    def move() -> None:
        world.add("new")
        world.end(world.claim_one())

    seen = _all(selectors.job_list, "jobs", "job_id", move)
    assert seen == [item.job_id for item in reversed(items)]


def test_pages_of_sessions_and_turns_show_each_once() -> None:
    names = [f"s{n}" for n in range(7)]
    for name in names:
        world.add(name)
    seen = _all(selectors.session_list, "sessions", "session_id", lambda: world.add("zz"))
    assert seen == names[::-1]
    turns = [world.add("long").job_id for _ in range(7)]
    assert _all(selectors.session_turns, "turns", "job_id", lambda: None, session_id="long") == turns


def test_a_page_that_is_exactly_full_has_no_next_one() -> None:
    for n in range(3):
        world.add(f"s{n}")
    assert selectors.job_list(caller=MINE, limit=3)["next_cursor"] is None
    assert selectors.job_list(caller=MINE, limit=2)["next_cursor"] is not None


def test_a_cursor_of_another_list_is_refused() -> None:
    for n in range(3):
        world.add(f"s{n}")
    cursor = selectors.job_list(caller=MINE, limit=1)["next_cursor"]
    with pytest.raises(Invalid):
        selectors.session_list(caller=MINE, cursor=cursor)


@pytest.mark.parametrize("status", states.PUBLIC_STATUSES)
def test_a_list_by_status_shows_the_jobs_that_callers_see_in_it(status: str) -> None:
    made = {
        "pending": world.add("a"),
        "running": world.add("b"),
        "suspended": world.run(world.add("c"), Verb.SUSPEND, code="input", question="?"),
        "succeeded": world.run(world.add("d")),
        "failed": world.run(world.add("e"), Verb.FAILED, code="agent_error"),
        "cancelled": world.run(world.add("f"), Verb.CANCELLED, code="cancelled"),
        "dead_letter": world.run(world.add("g"), Verb.DEAD_LETTER, code="agent_error"),
    }
    world.claim_item(made["running"])
    found = [job["job_id"] for job in selectors.job_list(caller=MINE, status=status)["jobs"]]
    assert found == [made[status].job_id]


def test_the_turns_of_a_session_are_told_in_order_with_their_latest_run() -> None:
    first, second, third = world.add(task="1"), world.add(task="2"), world.add(task="3")
    world.run(first, Verb.RETRY, code="agent_error")
    world.run(first, result="one")
    world.authority().transitions.cancel([second.pk], code="cancelled")
    world.claim_item(third)
    turns = selectors.session_turns(caller=MINE, session_id="s")["turns"]
    assert [(t["turn_number"], t["task"], t["status"], t["attempt"]) for t in turns] == [
        (1, "1", "succeeded", 2),
        (None, "2", "cancelled", 0),
        (2, "3", "running", 1),
    ]
    assert turns[0]["result"] == "one"


def test_a_session_shows_its_question_until_it_is_answered() -> None:
    item = world.run(world.add(), Verb.SUSPEND, code="input", question="which?", choices=["a", "b"])
    session = selectors.session_get(caller=MINE, session_id="s")
    assert session["status"] == "needs_input"
    assert (session["needs_input"]["question"], session["needs_input"]["choices"]) == ("which?", ["a", "b"])
    assert session["needs_input"]["job_id"] == item.job_id
    world.authority().transitions.cancel([item.pk], code="cancelled")
    assert selectors.session_get(caller=MINE, session_id="s")["needs_input"] is None


# -- health ------------------------------------------------------------------------------------------------------------
def test_findings_name_what_the_ticks_should_have_mended_and_nothing_while_all_is_well() -> None:
    ready, running = world.add("a"), world.add("b")
    world.claim_item(running)
    assert selectors.convergence_findings() == {}
    WorkItem.objects.filter(pk=running.pk).update(lease_expires_at=None)
    with world.transport().transaction():
        world.transport().ack([ready.pk])
    assert selectors.convergence_findings() == {"leases_expired": 1, "items_without_envelope": 1}
    world.authority().repair()
    world.authority().transitions.rescue()
    assert selectors.convergence_findings() == {}
