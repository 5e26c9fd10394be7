"""What is old goes, and nothing that others wait on; nobody is kept waiting for it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from dispatch import wiring
from dispatch.authority.removal import JOB_ROWS, table_of
from dispatch.clock import store_now
from dispatch.errors import NotRetryable
from dispatch.maintenance.aged import AgedTable, aged_tables
from dispatch.maintenance.preview import Preview
from dispatch.maintenance.pruner import Pruner, prune
from dispatch.models import (
    CoalescedRequest,
    DeadEnvelope,
    OutputChunk,
    PruneTotal,
    Question,
    StepResult,
    WorkItem,
    WorkItemDependency,
)
from dispatch.states import Verb
from sessions_app.models import AuditEntry, Goal, GoalIteration, Session, Turn
from tests.dispatch.authority import world
from tests.dispatch.maintenance.aging import MONTH, WEEK, age, ended, policy, pruned, there

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def test_a_job_goes_with_all_that_hangs_on_it() -> None:
    item = ended()
    now = store_now()
    other = ended("other")
    WorkItemDependency.objects.create(work_item=other, parent=item)
    StepResult.objects.create(work_item=item, name="a", epoch=1, created_at=now)
    OutputChunk.objects.create(work_item=item, epoch=1, kind="text", data={}, at=now)
    Question.objects.create(work_item=item, session=world.session_of(item), epoch=1, question="?", asked_at=now)
    CoalescedRequest.objects.create(job_id=f"orch-{'2' * 32}", work_item=item)
    Goal.objects.create(
        tenant="t1",
        session=world.session_of(item),
        work_item_id=item.pk,
        job_id=item.job_id,
        objective="x",
        created_at=now,
        updated_at=now,
    )
    GoalIteration.objects.create(
        work_item_id=item.pk,
        iteration=1,
        epoch=1,
        checkpoint_id="checkpoint-1",
        passed=True,
        validation={},
        result_excerpt="",
        seconds=1,
        finished_at=now,
    )
    age(item)
    removed = pruned()
    assert there(item, other) == [False, True]
    assert not Session.objects.filter(pk=item.session_id).exists()
    for model, column in JOB_ROWS:
        assert not model._default_manager.filter(**{column: item.pk}).exists(), model
    assert removed["work_items"] == removed["sessions"] == removed["turns"] == removed["outcomes"] == 1
    assert removed["work_item_events"] == 3
    assert dict(PruneTotal.objects.values_list("table", "rows")) == dict(removed)


def test_what_is_young_or_unfinished_stays() -> None:
    young, waiting = ended("a"), world.add("b")
    running = world.claim_item(world.add("c"))
    age(world.fresh_by(running.item_id), waiting)
    assert not pruned(session_turns=0)
    assert there(young, waiting, world.fresh_by(running.item_id)) == [True] * 3
    world.check()


def test_a_count_holds_for_each_tenant_and_its_newest_jobs_stay() -> None:
    mine = [ended(f"s{n}") for n in range(4)]
    theirs = ended("s0", tenant="t2")
    pruned(jobs_age=None, sessions_age=None, jobs_max=3, session_turns=0)
    assert there(*mine, theirs) == [False, True, True, True, True]


def test_a_session_keeps_its_newest_turns_whatever_their_age() -> None:
    turns = [ended("chat") for _ in range(4)]
    age(*turns, session_too=False)
    pruned()
    assert there(*turns) == [False, False, True, True]
    lease = world.claim_item(world.add("chat"))
    assert lease.turn_number == 5
    assert [turn["turn_number"] for turn in wiring.turn_store().history(lease)] == [3, 4]


def test_a_session_that_is_used_keeps_its_turns_and_an_idle_one_goes_whole() -> None:
    used, idle = [ended("used"), world.add("used")], [ended("idle"), ended("idle")]
    age(*used, *idle)
    pruned()
    assert there(*used, *idle) == [True, True, False, False]
    assert list(Session.objects.values_list("session_id", flat=True)) == ["used"]


def test_the_session_of_a_job_that_was_dispatched_without_one_goes_with_it() -> None:
    job_id = f"orch-{'1' * 32}"
    alone = ended(job_id, job_id=job_id)
    age(alone, session_too=False)
    assert pruned(sessions_age=None)["sessions"] == 1
    assert not Session.objects.exists()


def test_a_paused_session_is_remembered() -> None:
    item = ended()
    world.authority().transitions.pause([item.session_id], by="me", reason="")
    age(item)
    pruned()
    assert Session.objects.get().desired == "pause"


def test_sessions_over_the_count_go_that_were_used_longest_ago() -> None:
    first, second, third = ended("first"), ended("second"), ended("third")
    age(second, by=timedelta(days=1))
    pruned(jobs_age=None, sessions_age=None, sessions_max=2)
    assert there(first, second, third) == [True, False, True]


def test_its_id_begins_anew_after_a_session_went() -> None:
    age(ended())
    pruned()
    lease = world.claim_item(world.add())
    assert (lease.turn_number, lease.state) == (1, {})


# -- what others wait on -----------------------------------------------------------------------------------------------
def test_a_job_that_another_waits_for_stays() -> None:
    parent = ended("parent")
    slow = world.add("slow")
    child = world.add("child", dependencies=[parent.job_id, slow.job_id])
    age(parent)
    pruned()
    assert there(parent) == [True]
    world.run(slow)
    world.run(child)
    pruned()
    assert there(parent) == [False]


def test_a_parent_that_failed_stays_as_long_as_what_it_cancelled_may_be_retried() -> None:
    parent = world.add("parent")
    child = world.add("child", dependencies=[parent.job_id])
    world.run(parent, Verb.FAILED, code="agent_error")
    age(parent)
    pruned()
    assert there(parent) == [True]
    with pytest.raises(NotRetryable):
        world.authority().transitions.retry(child.pk)


def test_children_stay_while_their_parent_runs_and_it_while_they_do() -> None:
    parent, lost = world.add("parent"), ended("lost")
    child = ended("child", parent_item_id=parent.pk)
    orphan = world.add("orphan", parent_item_id=lost.pk)
    age(child, lost)
    pruned()
    assert there(parent, child, lost, orphan) == [True] * 4
    world.run(parent)
    world.run(orphan)
    pruned()
    assert there(child, lost) == [False, False]


def test_a_chain_is_not_broken_at_its_end() -> None:
    """The middle one is what the last waits for; the first is not, and succeeded."""
    first = ended("a")
    middle = world.run(world.add("b", dependencies=[first.job_id]))
    slow = world.add("slow")
    last = world.add("c", dependencies=[middle.job_id, slow.job_id])
    age(first, middle)
    pruned()
    assert there(first, middle, last) == [False, True, True]


# -- rounds, counts, other tables --------------------------------------------------------------------------------------
def test_a_pass_is_cut_into_rounds_and_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatch.maintenance.pruner.SMALLEST", 1)
    monkeypatch.setattr("dispatch.maintenance.pruner.LARGEST", 1)
    monkeypatch.setattr("dispatch.maintenance.pruner.ROUND_S", 0.0)
    items = [ended(f"s{n}") for n in range(3)]
    age(*items)
    pruner = Pruner(world.authority(), policy=policy(jobs_age=None), tables=())
    rounds = [pruner.run_round() for _ in range(8)]
    assert there(*items) == [False] * 3
    assert len([rows for rows in rounds if rows]) == 6  # three jobs, three sessions
    assert pruner.run_round() == 0, "the next pass has its time"


def test_the_total_of_turns_never_falls() -> None:
    age(ended(), ended("b", Verb.FAILED))
    before = world.counted()
    pruned()
    assert not WorkItem.objects.exists()
    assert world.counted() == before


def test_a_count_beforehand_tells_what_a_pass_then_deletes() -> None:
    items = [ended("a"), ended("a"), ended("b", Verb.FAILED), ended(f"orch-{'2' * 32}", job_id=f"orch-{'2' * 32}")]
    theirs = ended("a", tenant="t2")
    WorkItemDependency.objects.create(work_item=items[1], parent=items[0])
    age(*items, theirs)
    ended("young")
    for number in range(3):
        AuditEntry.objects.create(at=store_now(), tenant="t1", verb=f"v{number}")
    tables = (AgedTable(model=AuditEntry, at="at", most=2, per_tenant=True),)
    told = Preview(policy=policy(session_turns=0), tables=tables).count()
    assert told["t2"]["work_items"] == told["t2"]["sessions"] == 1
    assert told["t1"]["work_item_dependencies"] == told["t1"]["audit_entries"] == 1
    assert WorkItem.objects.count() == 6, "nothing has gone yet"
    done = prune(Pruner(world.authority(), policy=policy(session_turns=0), tables=tables))
    assert sum(told.values(), Counter()) == done


def test_other_tables_go_by_age_and_count() -> None:
    now = store_now()
    for number in range(5):
        seen = now - (MONTH if number == 4 else timedelta(0))
        DeadEnvelope.objects.create(digest=str(number), body=b"", size=0, transport="x", reason="x", seen_at=seen)
    table = AgedTable(model=DeadEnvelope, at="seen_at", age=WEEK, most=3)
    assert pruned((table,)) == {table_of(DeadEnvelope): 2}
    assert sorted(DeadEnvelope.objects.values_list("digest", flat=True)) == ["1", "2", "3"]


def test_every_table_that_only_grows_has_its_rule() -> None:
    ruled = {table_of(table.model) for table in aged_tables(wiring.config())}
    assert ruled == {"audit_entries", "dead_envelopes", "fleet_samples", "bulk_operations"}


def command(*options: str) -> str:
    out = StringIO()
    call_command("prune_dispatch", *options, stdout=out)
    return out.getvalue()


def test_the_command_counts_then_deletes() -> None:
    item = ended()
    age(item, by=timedelta(days=400))
    told = json.loads(command("--dry-run", "--json"))
    assert told["dry_run"] is True
    assert told["rows"]["t1"]["work_items"] == 1
    assert there(item) == [True]
    assert "work_items" in command("--dry-run")
    assert f"{told['total']} rows deleted" in command()
    assert not Turn.objects.exists()
    assert json.loads(command("--json")) == {"dry_run": False, "rows": {"(all)": {}}, "total": 0}
