"""`manage.py fleet`: the same answers, rules and audit as REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from dispatch.models import DispatchWorker
from sessions_app.models import AuditEntry, Session
from tests.fleet import rows
from tests.fleet.terminal import answered, manage

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

MOVING = {"generated_at", "evidence"}  # read anew by each caller


@pytest.fixture
def two_tenants() -> None:
    rows.session("a", tenant="t1", status="idle")
    rows.session("b", tenant="t1", status="failed", metadata={"domain": "billing"})
    rows.session("c", tenant="t2", status="active")


def still(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in MOVING}


@pytest.mark.parametrize("page", ["health", "topology"])
@pytest.mark.parametrize("tenant", [None, "t1"])
def test_the_body_is_that_of_rest(client: Client, two_tenants: None, page: str, tenant: str | None) -> None:
    rows.worker(rows.item(rows.session("d", tenant="t1", status="active"), status="running"))
    rows.converge()
    header = rows.key(tenant or "ops", "read", platform=tenant is None)
    expected = client.get(f"/api/fleet/{page}", headers=header).json()
    code, body = answered("fleet", page, *(["--tenant", tenant] if tenant else []))
    assert code == 0
    assert list(body) == list(expected)
    assert still(body) == still(expected)
    assert body["evidence"]["status"] == expected["evidence"]["status"]


def test_health_for_people_has_the_verdict_first_and_the_workers(two_tenants: None) -> None:
    worker = rows.worker()
    code, text, _ = manage("fleet", "health")
    assert code == 0
    assert text.startswith("evidence is healthy; ready\n")
    for part in ("sessions: 3 (1 active, 1 idle, 1 failed)", "billing", worker.worker_id):
        assert part in text


def test_health_that_is_not_ready_is_exit_1_and_unknown_is_never_zero(two_tenants: None) -> None:
    rows.drop("sessions")
    code, text, _ = manage("fleet", "health")
    assert code == 1
    assert text.startswith("evidence is partial; NOT READY\n")
    assert "sessions: unknown" in text
    assert "domains: unknown" in text


def test_topology_pages_and_says_what_lies_beyond(two_tenants: None) -> None:
    code, text, _ = manage("fleet", "topology", "--limit", "1", "--offset", "1")
    assert code == 0
    assert "sessions 2 to 2 of 3, in 3 domains" in text
    code, body = answered("fleet", "topology", "--status", "failed")
    assert [one["id"] for group in body["domains"] for one in group["sessions"]] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("topology", "--limit", "many"), "limit"),
        (("topology", "--offset", "100001"), "offset"),
        (("topology", "--status", "asleep"), "status"),
        (("pause", "--reason", "x"), "session_ids"),
        (("pause", "a", "--domain", "d", "--reason", "x"), "session_ids"),
        (("pause", "a", "--reason", ""), "reason"),
        (("kill", "--filter", "color=red", "--reason", "x"), "color"),
        (("kill", "--filter", "failed", "--reason", "x"), "filter"),
        (("resume", "a", "--reason", "x", "--tenant", ""), "tenant"),
    ],
)
def test_a_wrong_argument_is_one_sentence_that_names_it_and_exit_2(arguments: tuple[str, ...], named: str) -> None:
    code, out, err = manage("fleet", *arguments)
    assert (code, out) == (2, "")
    assert named in err


@pytest.mark.parametrize("verb", ["pause", "resume", "kill"])
def test_steering_takes_a_reason(verb: str) -> None:
    with pytest.raises(CommandError, match="--reason"):
        manage("fleet", verb, "a")


def test_pause_by_ids_says_what_came_of_each_and_is_audited(two_tenants: None) -> None:
    code, body = answered("fleet", "pause", "a", "gone", "--reason", "the model is down")
    assert code == 1, "one of them is not there"
    assert body == {
        "results": [{"session_id": "a", "outcome": "applied"}, {"session_id": "gone", "outcome": "not_found"}],
        "counts": {"applied": 1, "not_found": 1},
    }
    session = Session.objects.get(session_id="a")
    assert (session.status, session.desired_reason) == ("paused", "the model is down")
    acts = AuditEntry.objects.order_by("id").values_list(
        "actor_kind", "verb", "object_id", "tenant", "reason", "result"
    )
    assert list(acts) == [
        ("command_line", "pause", "a", "t1", "the model is down", "applied"),
        ("command_line", "pause", "gone", "", "the model is down", "not_found"),
    ]
    assert session.desired_by == AuditEntry.objects.first().actor  # type: ignore[union-attr]
    code, text, _ = manage("fleet", "resume", "a", "--reason", "it is up")
    assert (code, text.splitlines()[0]) == (0, "resume: 1 applied")


def test_a_tenant_steers_its_own_sessions_only(two_tenants: None) -> None:
    code, body = answered("fleet", "pause", "c", "--tenant", "t1", "--reason", "x")
    assert (code, body["counts"]) == (1, {"not_found": 1})
    assert Session.objects.get(session_id="c").desired == "run"


def test_a_filter_and_a_domain_choose_too_and_nobody_is_exit_1(two_tenants: None) -> None:
    code, body = answered("fleet", "pause", "--filter", "status=failed", "--filter", "domain=billing", "--reason", "x")
    assert (code, [one["session_id"] for one in body["results"]]) == (0, ["b"])
    code, body = answered("fleet", "resume", "--domain", "billing", "--reason", "x")
    assert (code, body["counts"]) == (0, {"applied": 1})
    code, text, _ = manage("fleet", "kill", "--domain", "nowhere", "--reason", "x")
    assert (code, text) == (1, "kill: no session matches\n")


def test_many_sessions_are_counted_and_listed_whole_in_the_body() -> None:
    for number in range(120):
        rows.session(f"m-{number}", metadata={"domain": "many"})
    code, text, _ = manage("fleet", "pause", "--domain", "many", "--reason", "x")
    assert (code, text) == (0, "pause: 120 applied; --json tells of each session\n")
    assert len(answered("fleet", "resume", "--domain", "many", "--reason", "x")[1]["results"]) == 120
    assert AuditEntry.objects.filter(verb="pause", result="applied").count() == 120


def test_drain_asks_the_worker_and_is_audited_with_its_reason() -> None:
    worker = rows.worker()
    assert answered("fleet", "drain", worker.worker_id, "--reason", "new kernel") == (
        0,
        {"worker_id": worker.worker_id, "draining": True},
    )
    assert DispatchWorker.objects.get().draining is True
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.object_id, entry.reason, entry.result) == (
        "drain",
        worker.worker_id,
        "new kernel",
        "requested",
    )


def test_drain_of_nobody_and_by_a_tenant_is_refused_with_exit_3() -> None:
    worker = rows.worker()
    assert answered("fleet", "drain", "nobody:1:agent-dispatch:0")[1]["code"] == "not_found"
    code, body = answered("fleet", "drain", worker.worker_id, "--tenant", "t1")
    assert (code, body["code"]) == (3, "forbidden")
    assert DispatchWorker.objects.get().draining is False


def test_a_store_that_cannot_be_read_is_one_sentence_with_its_setting_and_exit_2() -> None:
    job = rows.item(rows.session())
    rows.drop("work_items")
    code, out, err = manage("jobs", "show", job.job_id)
    assert (code, out) == (2, "")
    assert err.startswith(("AGENT_DATA_DIR: the state store", "STATE_DB_URI: the state store"))
    assert err.count("\n") == 1


def test_shut_gates_and_open(client: Client) -> None:
    assert manage("fleet", "gates") == (0, "claiming is not paused\n", "")
    code, body = answered("fleet", "shut", "agent", "echo", "--reason", "deploy")
    assert (code, body["outcome"]) == (0, "applied")
    assert manage("fleet", "shut", "agent", "echo", "--reason", "again")[1].endswith("agent echo was paused already\n")
    expected = client.get("/api/fleet/gates", headers=rows.key("ops", platform=True)).json()
    assert answered("fleet", "gates") == (0, expected)
    _, text, _ = manage("fleet", "gates")
    assert text.splitlines()[1].split()[:2] == ["agent", "echo"]
    assert manage("fleet", "open", "agent", "echo", "--reason", "done")[1] == "claiming for agent echo goes on\n"
    assert manage("fleet", "shut", "fleet", "--reason", "x")[1] == "claiming for the whole fleet is paused\n"
    assert manage("fleet", "open", "fleet", "--reason", "x", "--tenant", "t1")[0] == 3
    assert "name" in manage("fleet", "shut", "kind", "--reason", "x")[2]
