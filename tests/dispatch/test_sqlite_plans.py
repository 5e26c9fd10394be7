"""On SQLite, too, the reads that are asked often walk an index and not a table of all that ever was."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dispatch import selectors as jobs
from dispatch.access import Caller
from dispatch.authority import questions
from dispatch.authority.removal import removable_jobs
from dispatch.webhooks import outbox
from dispatch.webhooks.selectors import delivery_totals, oldest_pending_s
from fleet import goals, selectors
from sessions_app.selectors import session_keys
from tests.fleet import rows

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="the plans of SQLite"),
]

TENANT = Caller(tenant="t1", name="test", kind="api_key", scopes=frozenset({"read"}))
TABLES = "sessions|work_items|outcomes|turns|work_item_events|webhook_watches|webhook_deliveries|questions"
WHOLE_TABLE = re.compile(rf"^SCAN ({TABLES})(?: AS \w+)?$")
READS: dict[str, Callable[[], object]] = {
    "topology": lambda: selectors.sessions_page(tenant=None, status=None, domain=None, limit=200, offset=1_000),
    "topology, a domain": lambda: selectors.sessions_page(tenant=None, status=None, domain="d", limit=200, offset=0),
    "topology, a tenant": lambda: selectors.sessions_page(tenant="t1", status=None, domain=None, limit=200, offset=0),
    "health of a tenant": lambda: selectors.session_counts(tenant="t1"),
    "jobs of a tenant": lambda: jobs.job_list(caller=TENANT),
    "running jobs of a tenant": lambda: jobs.job_list(caller=TENANT, status="running"),
    "sessions by id in every tenant": lambda: session_keys(["one", "two"], tenants=None),
    "sessions by id in a tenant": lambda: session_keys(["one"], tenants=["t1"]),
    "goals counted": lambda: goals.goal_counts(tenant="t1"),
    "goals that have not ended": lambda: goals.goals_active(tenant=None),
    "turns without a worker": lambda: selectors.turns_without_worker(selectors.workers_live()),
    "running turns": lambda: selectors.running_count(tenant=None),
    "callbacks that are due": outbox.is_due,
    "a callback to send": lambda: outbox.claim(lease_s=1),
    "news for callbacks": lambda: outbox.News().look(),
    "callbacks by state": lambda: (delivery_totals(), oldest_pending_s()),
    "questions that are due": questions.due,
    "retention": lambda: list(removable_jobs(keep_turns=100).filter(pk__gte=1, pk__lte=500)),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_walks_an_index(name: str) -> None:
    rows.item(rows.session())
    rows.deliveries(pending=1)
    with CaptureQueriesContext(connection) as queries:
        READS[name]()
    statements = [query["sql"] for query in queries if query["sql"].startswith(("SELECT", "WITH"))]
    assert statements
    for sql in statements:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            steps = [step for *_, step in cursor.fetchall()]
        assert not [step for step in steps if WHOLE_TABLE.match(step)], f"{steps}\n{sql}"
