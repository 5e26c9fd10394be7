"""Reads of a large store walk an index: none of them goes over a big table."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dispatch import selectors as jobs
from dispatch import wiring
from dispatch.access import Caller
from dispatch.authority.removal import removable_jobs
from dispatch.models import WorkItem
from fleet import goals, selectors
from fleet.models import TenantMembership
from tests.dispatch.postgres import ground

pytestmark = [pytest.mark.store, pytest.mark.slow]

SESSIONS, READY = 50_000, 20_000
BIG = {"sessions", "work_items", "work_item_events", "outcomes", "turns", "agent_dispatch_queue"}
SCOPES = frozenset({"read"})
PLATFORM = Caller(tenant="ops", name="test", kind="api_key", scopes=SCOPES, platform=True)
TENANT = Caller(tenant="tenant-7", name="test", kind="api_key", scopes=SCOPES)


@pytest.fixture
def large_store(world: None) -> None:
    from benchmarks.scale_load import load  # it starts Django

    load(sessions=SESSIONS, ready=READY)
    ground.sql("UPDATE agent_dispatch_queue SET state = 0 WHERE work_item_id % 50 <> 0")
    ground.sql("VACUUM FULL ANALYZE agent_dispatch_queue")
    ground.sql("VACUUM ANALYZE sessions")  # as autovacuum has done long since


def page(**changes: Any) -> Callable[[], object]:
    asked = {"tenant": None, "status": None, "domain": None, "limit": 200, "offset": 0}
    return lambda: selectors.sessions_page(**{**asked, **changes})


def second_page() -> object:
    cursor = jobs.job_list(caller=TENANT)["next_cursor"]
    return jobs.job_list(caller=TENANT, cursor=cursor)


def removable_window() -> object:
    first, last = SESSIONS // 2, SESSIONS // 2 + 100
    return list(removable_jobs(keep_turns=100).filter(pk__gte=first, pk__lte=last).values_list("pk", flat=True))


def shown(page: str, *, tenants: tuple[str, ...] = ("tenant-7",), **asked: str) -> Callable[[], object]:
    """A page of the console as a member of staff sees it; with no tenants as one who sees them all."""

    def read() -> None:
        client = Client()
        client.force_login(staff(tenants))
        answer = client.get(reverse(f"admin:{page}_changelist"), asked)
        assert answer.status_code == 200

    return read


def staff(tenants: tuple[str, ...]) -> User:
    user, made = User.objects.get_or_create(
        username="-".join(tenants) or "all", defaults={"is_staff": True, "is_superuser": not tenants}
    )
    if made and tenants:
        group, _ = Group.objects.get_or_create(name="fleet-operator")  # a test that commits leaves none
        user.groups.add(group)
        TenantMembership.objects.bulk_create(TenantMembership(user=user, tenant=tenant) for tenant in tenants)
    return user


# what succeeded is most of what ended: the first ten thousand of it are among the first rows, in whatever order
STATES = [{"state": state} for state in ("ended_badly", "failed", "cancelled", "dead_letter", "ready", "running")]
WISHES = [{"state": state} for state in ("paused", "needs_input", "failed")]
LEASES = [{"lease": lease} for lease in ("held", "expired", "lost")]
ITEMS, CHATS, TURNS = "dispatch_workitem", "sessions_app_session", "sessions_app_turn"
CONSOLE: dict[str, Callable[[], object]] = {
    f"{page}, {whose}, {asked}": shown(page, tenants=tenants, **asked)
    for page, searches in {
        ITEMS: [
            {},
            {"q": f"orch-{7:032}"},
            {"q": "orch-none"},
            {"q": "session-00000007"},
            {"q": "no such words"},
            *STATES,
            *LEASES,
        ],
        CHATS: [
            *WISHES,
            {},
            {"q": "session-00000007"},
            {"q": "no such words"},
        ],
        TURNS: [{}, {"q": f"orch-{7:032}"}, {"q": "no such words"}],
    }.items()
    for asked in searches
    for whose, tenants in {"a tenant": ("tenant-7",), "all": ()}.items()
}
READS: dict[str, Callable[[], object]] = {
    "topology": page(),
    "topology, far behind": page(offset=20_000),
    "topology, a domain": page(domain="domain-7"),
    "topology, a tenant": page(tenant="tenant-7"),
    "health": lambda: selectors.session_counts(tenant=None),
    "health of a tenant": lambda: selectors.session_counts(tenant="tenant-7"),
    "jobs": lambda: jobs.job_list(caller=PLATFORM),
    "jobs of a tenant": lambda: jobs.job_list(caller=TENANT),
    "jobs of a tenant, second page": second_page,
    "jobs of a tenant, failed": lambda: jobs.job_list(caller=TENANT, status="failed"),
    "jobs of a tenant, running": lambda: jobs.job_list(caller=TENANT, status="running"),
    "jobs of a tenant, pending": lambda: jobs.job_list(caller=TENANT, status="pending"),
    "jobs of a session": lambda: jobs.job_list(caller=TENANT, session_id="session-00000007"),
    "sessions of a tenant": lambda: jobs.session_list(caller=TENANT),
    "a job": lambda: jobs.job_get(caller=TENANT, job_id=f"orch-{7:032}"),
    "claimable turns": lambda: selectors.ready_turns(tenant=None),
    "jobs of a session, every tenant": lambda: jobs.job_list(caller=PLATFORM, session_id="session-00000007"),
    "a session, every tenant": lambda: jobs.find_session(PLATFORM, "session-00000007"),
    "goals counted": lambda: goals.goal_counts(tenant=None),
    "goals that have not ended": lambda: goals.goals_active(tenant="tenant-7"),
    "turns without a worker": lambda: selectors.turns_without_worker(selectors.workers_live()),
    "running turns": lambda: selectors.running_count(tenant=None),
    "state against queue": lambda: wiring.authority().astray(limit=10),
    "the release tick": lambda: wiring.authority().transitions.release_waiting(),
    "the rescue tick": lambda: wiring.authority().transitions.rescue(),
    "retention": removable_window,
}


def scanned(sql: str) -> set[str]:
    """The big tables that the planner would read from end to end for this statement."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        (plan,) = cursor.fetchone()
    found: set[str] = set()
    todo = [((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"], False)]
    while todo:
        node, limited = todo.pop()
        todo += [(below, node["Node Type"] == "Limit") for below in node.get("Plans", [])]
        # the first rows of a table, whichever they are, are few: a count that goes no further than its cap
        if node["Node Type"] == "Seq Scan" and (not limited or "Filter" in node):
            found.add(node["Relation Name"])
    return found & BIG


def scans_of(read: Callable[[], object]) -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        read()
    statements = [query["sql"] for query in queries if query["sql"].startswith(("SELECT", "WITH", "(SELECT"))]
    assert statements
    return [f"{tables}: {sql[:300]}" for sql in statements if (tables := scanned(sql))]


def test_no_read_goes_over_a_big_table(large_store: None) -> None:
    over = {name: scans for name, read in {**READS, **CONSOLE}.items() if (scans := scans_of(read))}
    assert not over, "\n".join(f"{name}\n  " + "\n  ".join(scans) for name, scans in over.items())
    assert WorkItem.objects.count() == SESSIONS + READY
