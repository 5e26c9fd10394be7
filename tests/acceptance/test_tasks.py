"""Django tasks of a project, run by a real worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, Template
from tests.support.processes import Proc

pytestmark = [pytest.mark.store, pytest.mark.process]

WAIT = """
import json, time
from datetime import timedelta
from django.utils import timezone
from django_tasks import task_backends
from tests.support import task_functions as tasks
def shown(result):
    names = ("id", "status", "args", "kwargs", "backend", "worker_ids", "attempts", "is_finished")
    told = {name: getattr(result, name) for name in names}
    told["status"] = str(result.status)
    told["errors"] = [[one.exception_class_path, one.exception_class.__name__, one.traceback] for one in result.errors]
    told["value"] = result.return_value if told["status"] == "SUCCESSFUL" else None
    told["task"] = [result.task.module_path, result.task.priority, result.task.queue_name]
    return told
def ended(result):
    end = time.monotonic() + 40
    while not result.is_finished and time.monotonic() < end:
        time.sleep(0.1)
        result.refresh()
    return shown(result)
"""


@pytest.fixture(scope="module")
def installation(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A project of its own."""
    place = tmp_path_factory.mktemp("tasks") / "f"
    with Fleet(place, template, DJANGO_SETTINGS_MODULE="tests.support.tasks_settings") as fleet:
        yield fleet


def told(fleet: Fleet, code: str) -> Any:
    return json.loads(fleet.python(f"{WAIT}\n{code}").splitlines()[-1])


def test_tasks_run_on_the_fleet_and_tell_what_they_returned(fleet: Fleet, api: Api, standing_worker: Proc) -> None:
    code = """
import asyncio
results = [tasks.add.enqueue(2, other=3), tasks.spell.enqueue("abc"), tasks.who.enqueue()]
results.append(asyncio.run(tasks.add.aenqueue(40, 2)))
print(json.dumps([ended(result) for result in results]))
"""
    add, spell, who, awaited = told(fleet, code)
    assert [one["status"] for one in (add, spell, who, awaited)] == ["SUCCESSFUL"] * 4
    assert (add["value"], spell["value"], awaited["value"]) == (5, ["a", "b", "c"], 42)
    assert (add["args"], add["kwargs"], add["backend"]) == ([2], {"other": 3}, "default")
    assert who["value"] == [who["id"], 1, 1], "it has its context, and the database"
    assert spell["task"] == ["tests.support.task_functions.spell", 60, "slow"]
    job = api.job(spell["id"])
    assert (job["agent_name"], job["priority"], job["task"]) == (
        "django-task.slow",
        "critical",
        "tests.support.task_functions.spell",
    )
    assert (add["attempts"], len(add["worker_ids"])) == (1, 1)


def test_what_a_task_raises_is_told_with_its_traceback_and_it_is_tried_as_often_as_asked(
    fleet: Fleet, standing_worker: Proc, tmp_path: Path
) -> None:
    code = f"""
results = [tasks.fail.enqueue("boom"), tasks.give_an_object.enqueue(), tasks.fail_once.enqueue({str(tmp_path / "x")!r})]
print(json.dumps([ended(result) for result in results]))
"""
    failed, no_json, second = told(fleet, code)
    ((path, name, trace),) = failed["errors"]
    assert (failed["status"], failed["value"], path, name) == ("FAILED", None, "builtins.ValueError", "ValueError")
    assert "task_functions.py" in trace
    assert trace.strip().endswith("ValueError: boom")
    assert (no_json["status"], no_json["errors"][0][0]) == ("FAILED", "builtins.TypeError")
    assert (second["status"], second["value"], second["attempts"]) == ("SUCCESSFUL", "done", 2)
    assert [error[0] for error in second["errors"]] == ["builtins.OSError"]


def test_a_task_waits_for_its_time_and_a_cancelled_one_failed(fleet: Fleet, api: Api, standing_worker: Proc) -> None:
    code = """
later = tasks.add.using(run_after=timezone.now() + timedelta(days=1), priority=-5).enqueue(1)
print(json.dumps(shown(later)))
"""
    later = told(fleet, code)
    assert (later["status"], later["is_finished"]) == ("READY", False)
    job = api.job(later["id"])
    assert (job["priority"], job["explain"]["reason"]) == ("low", "not_due")
    assert api.ok("cancel", job_id=later["id"])["cancel"] == "done"
    again = told(fleet, f"print(json.dumps(shown(tasks.add.get_result({later['id']!r}))))")
    assert again["status"] == "FAILED"
    assert [error[1] for error in again["errors"]] == ["TaskJobEnded"]


@pytest.mark.parametrize(
    ("path", "payload", "said"),
    [
        ("tests.support.task_functions.plain", {}, "no function decorated with @task"),
        ("os.system", {}, "lies in no installed app"),
        ("tests.support.task_functions.missing", {}, "cannot be imported"),
        ("tests.support.task_functions.add", {"backend": "elsewhere"}, "no task backend"),
        ("tests.support.task_functions.add", {"backend": 7}, "no task backend"),
        ("tests.support.task_functions.add", {"args": "x"}, "no arguments"),
    ],
)
def test_a_dispatch_that_names_anything_else_is_refused_and_not_run(
    fleet: Fleet, api: Api, standing_worker: Proc, path: str, payload: dict[str, Any], said: str
) -> None:
    body = {"backend": "default", "args": [], "kwargs": {}, **payload}
    job = api.dispatch("django-task", task=path, payload=body)
    ended = api.finish([job], 20)[job]
    assert (ended["status"], ended["error"]["code"]) == ("failed", "discarded")
    assert said in ended["error"]["message"]


def test_another_tenant_runs_no_task_and_sees_none(fleet: Fleet, api: Api, standing_worker: Proc) -> None:
    theirs = fleet.api("t2")
    job = theirs.dispatch(
        "django-task",
        task="tests.support.task_functions.add",
        payload={"backend": "default", "args": [1], "kwargs": {}},
    )
    assert theirs.finish([job], 20)[job]["error"]["code"] == "discarded"
    code = f"""
from django_tasks.exceptions import TaskResultDoesNotExist
told = []
for name in ({job!r}, {api.dispatch("note")!r}, "nonsense"):
    try:
        task_backends["default"].get_result(name)
    except TaskResultDoesNotExist:
        told.append(name)
print(json.dumps(len(told)))
"""
    assert told(fleet, code) == 3


def test_the_default_agent_is_not_the_one_of_tasks_and_wrong_settings_are_found(fleet: Fleet) -> None:
    code = """
from dispatch import wiring
from dispatch.agents.registry import Registry
from dispatch.tasks.agent import task_agents
from dispatch.tasks import FleetBackend
alone = Registry()
for one in task_agents():
    alone.add(one)
wrong = FleetBackend("w", {"QUEUES": ["a b"], "OPTIONS": {"tenant": "", "max_attempts": 0, "tenants": 1}})
print(json.dumps([alone.default_name(), sorted(alone.names()), [one.id for one in wrong.check()],
                  list(task_backends["default"].check())]))
"""
    default, names, found, none = told(fleet, code)
    assert default == "echo"
    assert names == ["django-task", "django-task.slow"]
    assert found == [f"dispatch_tasks.E00{number}" for number in range(1, 5)]
    assert none == []
