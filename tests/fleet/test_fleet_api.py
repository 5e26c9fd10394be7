"""Health, topology, autoscale and drain over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dispatch.models import ClaimLimit, DispatchWorker, WorkItem
from fleet import selectors
from fleet.models import ApiKey, ScaleMemory
from tests.fleet import rows

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

HEALTH = "/api/fleet/health"
TOPOLOGY = "/api/fleet/topology"
AUTOSCALE = "/api/fleet/autoscale"


@pytest.fixture
def two_tenants() -> None:
    rows.session("a", tenant="t1", status="idle")
    rows.session("b", tenant="t1", status="failed")
    rows.session("c", tenant="t1", status="needs_input", metadata={"domain": "billing"}, background=True)
    rows.session("a", tenant="t2", status="active")
    rows.session("secret", tenant="t2", status="paused", metadata={"team": "ops"})


def get(client: Client, path: str, tenant: str = "t1", *, platform: bool = False) -> Any:
    return client.get(path, headers=rows.key(tenant, "read", platform=platform))


def test_health_has_exactly_its_keys_and_is_never_stored(client: Client, two_tenants: None) -> None:
    answer = get(client, HEALTH)
    assert (answer.status_code, answer["Cache-Control"]) == (200, "no-store")
    body = answer.json()
    assert list(body) == ["generated_at", "sessions", "goals", "domains", "dispatch_workers", "evidence"]
    assert body["sessions"]["total"] == 3
    assert {name: count for name, count in body["sessions"]["by_status"].items() if count} == {
        "idle": 1,
        "failed": 1,
        "needs_input": 1,
    }
    assert body["domains"] == {
        "billing": {"total": 1, "active": 0, "errored": 0, "error_rate": 0.0},
        "t1": {"total": 2, "active": 0, "errored": 1, "error_rate": 0.5},
    }
    assert body["goals"] == {"active": 0, "tracked": 0}
    assert body["dispatch_workers"] == []


def test_a_platform_key_sees_every_tenant(client: Client, two_tenants: None) -> None:
    body = get(client, HEALTH, "ops", platform=True).json()
    assert body["sessions"]["total"] == 5
    assert set(body["domains"]) == {"billing", "t1", "t2", "ops"}


@pytest.mark.parametrize(
    ("table", "parts"),
    [("sessions", {"sessions", "domains"}), ("goals", {"goals"}), ("dispatch_workers", {"dispatch_workers"})],
)
def test_a_part_that_cannot_be_read_is_null_and_the_answer_503(
    client: Client, two_tenants: None, table: str, parts: set[str]
) -> None:
    header = rows.key("t1", "read")
    rows.drop(table)
    answer = client.get(HEALTH, headers=header)
    body = answer.json()
    assert answer.status_code == 503
    assert {name for name, value in body.items() if value is None} == parts
    assert body["evidence"]["status"] == "partial"


def test_goals_are_counted_in_their_own_tenant(client: Client) -> None:
    rows.goal(rows.session(tenant="t1"))
    rows.goal(rows.session(tenant="t1"), status="succeeded")
    rows.goal(rows.session(tenant="t2"), objective="x" * 500)
    assert get(client, HEALTH).json()["goals"] == {"active": 1, "tracked": 2}
    (shown,) = get(client, TOPOLOGY, "t2").json()["goals"]
    assert set(shown) == {"job_id", "objective", "status", "iteration", "max_iterations"}
    assert len(shown["objective"]) == 200


def test_topology_has_exactly_its_keys(client: Client, two_tenants: None) -> None:
    body = get(client, TOPOLOGY).json()
    assert list(body) == ["generated_at", "domains", "goals", "dispatch_workers", "totals", "page", "evidence"]
    assert [(domain["domain"], [s["id"] for s in domain["sessions"]]) for domain in body["domains"]] == [
        ("billing", ["c"]),
        ("t1", ["a", "b"]),
    ]
    assert set(body["domains"][0]["sessions"][0]) == {"id", "status", "background", "needs_input", "updated_at"}
    waiting = body["domains"][0]["sessions"][0]
    assert (waiting["needs_input"], waiting["background"]) == (True, True)
    assert waiting["updated_at"].endswith("Z")
    assert body["totals"] == {"domains": 2, "sessions": 3, "dispatch_workers": 0}
    assert body["page"] == {"limit": 200, "offset": 0, "returned": 3}


def test_another_tenants_sessions_and_runs_are_not_shown(client: Client, two_tenants: None) -> None:
    mine = rows.item(rows.session("mine", tenant="t1", status="active"), status="running")
    theirs = rows.item(rows.session("theirs", tenant="t2", status="active"), status="running")
    rows.worker(mine, theirs)
    answer = get(client, TOPOLOGY)
    (worker,) = answer.json()["dispatch_workers"]
    assert set(worker) == {
        "worker_id",
        "host",
        "capacity",
        "active_sessions",
        "queue_backend",
        "started_at",
        "last_heartbeat",
    }
    assert worker["active_sessions"] == ["mine"]
    assert isinstance(worker["started_at"], float)
    for hidden in ("theirs", "secret", theirs.job_id):
        assert hidden not in answer.content.decode()
    (worker,) = get(client, TOPOLOGY, "ops", platform=True).json()["dispatch_workers"]
    assert worker["active_sessions"] == ["mine", "theirs"]


def test_active_sessions_are_those_of_the_leases_whenever_the_worker_last_reported(client: Client) -> None:
    old = rows.item(rows.session("ended", tenant="t1"), status="succeeded")
    worker = rows.worker(old, beat_s=25)
    stuck = [
        {"tenant": tenant, "session_id": f"stuck-{tenant}", "job_id": "x", "stuck": True} for tenant in ("t1", "t2")
    ]
    DispatchWorker.objects.filter(pk=worker.pk).update(active_sessions=worker.active_sessions + stuck)
    for name, tenant, owner in (
        ("long", "t1", worker.token),
        ("theirs", "t2", worker.token),
        ("lost", "t1", "another"),
    ):
        rows.item(rows.session(name, tenant=tenant, status="active"), status="running", owner=owner)
    rows.item(rows.session("waits", tenant="t1", status="active"))
    for path in (TOPOLOGY, HEALTH):
        (row,) = get(client, path).json()["dispatch_workers"]
        assert row["active_sessions"] == ["long", "stuck-t1"]
        (row,) = get(client, path, "ops", platform=True).json()["dispatch_workers"]
        assert row["active_sessions"] == ["long", "theirs", "stuck-t1", "stuck-t2"]


def test_the_turns_of_many_workers_are_named_in_two_queries(django_assert_num_queries: Any) -> None:
    workers = [rows.worker() for _ in range(20)]
    for number in range(100):
        rows.item(rows.session(status="active"), status="running", owner=workers[number % 20].token)
    with django_assert_num_queries(2):
        live = selectors.workers_live()
    assert [len(worker.runs) for worker in live] == [5] * 20


def test_pages_walk_every_session_once_in_a_stable_order(client: Client, two_tenants: None) -> None:
    seen = []
    for offset in range(0, 6, 2):
        body = get(client, f"{TOPOLOGY}?limit=2&offset={offset}", "ops", platform=True).json()
        seen += [(domain["domain"], s["id"]) for domain in body["domains"] for s in domain["sessions"]]
        assert body["totals"]["sessions"] == 5
    assert seen == [("billing", "c"), ("ops", "secret"), ("t1", "a"), ("t1", "b"), ("t2", "a")]


def test_filters_narrow_the_page_and_its_totals(client: Client, two_tenants: None) -> None:
    body = get(client, f"{TOPOLOGY}?status=failed").json()
    assert [s["id"] for domain in body["domains"] for s in domain["sessions"]] == ["b"]
    assert body["totals"]["sessions"] == 1
    body = get(client, f"{TOPOLOGY}?domain=billing").json()
    assert [domain["domain"] for domain in body["domains"]] == ["billing"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("limit=-1", "limit"),
        ("offset=100001", "offset"),
        ("offset=x", "offset"),
        ("status=asleep", "status"),
        ("domain=", "domain"),
        ("domain=%00", "domain"),
        ("oops=1", "oops"),
        ("limit=1&limit=2", "limit"),
    ],
)
def test_a_wrong_question_is_400_and_names_the_field(client: Client, query: str, field: str) -> None:
    answer = get(client, f"{TOPOLOGY}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert field in answer.json()["fields"]


def test_health_takes_no_question(client: Client) -> None:
    assert get(client, f"{HEALTH}?limit=1").status_code == 400


def test_autoscale_asks_for_one_slot_a_session_however_long_its_queue(client: Client) -> None:
    long = rows.session(tenant="t1", status="active")
    for _ in range(5):
        rows.item(long)
    rows.item(rows.session(tenant="t1", status="active"), status="running")
    rows.item(rows.session(tenant="t2", status="active"))
    rows.converge()
    body = get(client, f"{AUTOSCALE}?capacity=1").json()
    assert (body["claimable"], body["running"], body["desired"], body["reason"]) == (1, 1, 2, "backlog")
    assert body["oldest_ready_s"] >= 0
    everyone = get(client, f"{AUTOSCALE}?capacity=1&max=2", "ops", platform=True).json()
    assert (everyone["claimable"], everyone["desired"], everyone["reason"]) == (2, 2, "at_max")


def test_autoscale_counts_what_may_not_run_as_nothing(client: Client) -> None:
    rows.item(rows.session(tenant="t1", status="paused", desired="pause"))
    rows.item(rows.session(tenant="t1", status="active"), status="submitted")
    rows.item(rows.session(tenant="t1", status="needs_input"), status="suspended", suspended_for="input")
    rows.converge()
    body = get(client, AUTOSCALE).json()
    assert (body["claimable"], body["desired"], body["reason"], body["oldest_ready_s"]) == (0, 0, "idle", None)


def test_autoscale_refuses_unless_the_evidence_is_healthy(client: Client) -> None:
    header = rows.key("t1", "read")
    rows.drop("goals")
    answer = client.get(AUTOSCALE, headers=header)
    assert answer.status_code == 503
    body = answer.json()
    assert list(body) == ["desired", "current", "reason", "claimable", "running", "oldest_ready_s", "evidence"]
    assert (body["desired"], body["reason"]) == (None, "evidence_not_healthy")


def test_autoscale_with_bounds_the_wrong_way_round_is_400(client: Client) -> None:
    assert get(client, f"{AUTOSCALE}?min=5&max=1").status_code == 400


def test_drain_is_for_platform_keys_that_operate(client: Client) -> None:
    worker = rows.worker()
    path = f"/api/fleet/workers/{worker.worker_id}/drain"

    def post(*scopes: str, platform: bool, body: str = "{}") -> Any:
        header = rows.key("t1", *scopes, platform=platform)
        return client.post(path, body, content_type="application/json", headers=header)

    for scopes, platform in ((("read",), True), (("operate",), False), (("read", "dispatch"), False)):
        answer = post(*scopes, platform=platform)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    worker.refresh_from_db()
    assert worker.draining is False
    assert post("operate", platform=True, body='{"oops": 1}').status_code == 400
    answer = post("operate", platform=True)
    assert (answer.status_code, answer.json()) == (200, {"worker_id": worker.worker_id, "draining": True})
    worker.refresh_from_db()
    assert worker.draining is True


def test_draining_an_unknown_worker_is_404(client: Client) -> None:
    header = rows.key("ops", "operate", platform=True)
    answer = client.post("/api/fleet/workers/x:1:agent-dispatch:0/drain", "{}", "application/json", headers=header)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_keys_that_cannot_be_read_are_503_and_leak_nothing(client: Client) -> None:
    header = rows.key("t1", "read")
    rows.drop(ApiKey._meta.db_table)
    answer = client.get(HEALTH, headers=header)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")


def test_autoscale_goes_on_from_its_last_answer_whichever_process_is_asked(client: Client) -> None:
    items = [rows.item(rows.session(tenant="t1", status="active")) for _ in range(6)]
    rows.converge()
    ask = f"{AUTOSCALE}?capacity=1&stabilization_s=600"
    assert get(client, ask).json()["desired"] == 6
    WorkItem.objects.filter(pk__in=[item.pk for item in items[1:]]).update(status="submitted")
    rows.converge()
    held = get(client, ask).json()
    assert (held["claimable"], held["desired"], held["reason"]) == (1, 6, "stabilizing")
    assert get(client, f"{AUTOSCALE}?capacity=1&stabilization_s=0").json()["desired"] == 1, "another policy's own"
    assert get(client, ask, "t2").json()["desired"] == 0, "another tenant's own"


def test_autoscale_remembers_nothing_while_the_evidence_is_not_healthy(client: Client) -> None:
    header = rows.key("t1", "read")
    rows.drop("goals")
    assert client.get(AUTOSCALE, headers=header).status_code == 503
    assert not ScaleMemory.objects.exists()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("capacity=0", "capacity"),
        ("target=0", "target"),
        ("target=5e-324", "target"),
        ("deadband=2", "deadband"),
        ("cooldown_s=-1", "cooldown_s"),
        ("stabilization_s=nan", "stabilization_s"),
        ("step_up=0", "step_up"),
        ("step_down=x", "step_down"),
        ("max_wait_s=0", "max_wait_s"),
    ],
)
def test_a_wrong_policy_is_400_and_names_the_field(client: Client, query: str, field: str) -> None:
    answer = get(client, f"{AUTOSCALE}?{query}")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])


def test_what_a_cap_holds_asks_for_no_worker(client: Client) -> None:
    for number in range(6):
        rows.item(rows.session(tenant="t1", status="active"), agent_name="echo" if number % 2 else "other")
    rows.item(rows.session(tenant="t2", status="active"), status="running")
    rows.converge()
    now = timezone.now()
    common = {"burst": 1, "refilled_at": now, "set_at": now, "reason": "x", "set_by": "ops"}
    ClaimLimit.objects.create(scope="agent", name="echo", max_running=2, **common)
    ask = f"{AUTOSCALE}?capacity=1&stabilization_s=0"
    body = get(client, ask, "ops", platform=True).json()
    assert (body["claimable"], body["running"], body["desired"]) == (4, 1, 5), "one more of echo, three of other"
    ClaimLimit.objects.create(scope="tenant", name="t1", max_running=2, **common)
    assert get(client, ask, "ops", platform=True).json()["claimable"] == 2
