"""The function that settles and claims by job id: one statement a step, and no more rows looked at than are in hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from dispatch.authority.deliveries_postgres import CALL
from dispatch.models import WorkItem
from dispatch.ports import Lease
from tests.dispatch.authority import world
from tests.dispatch.authority.test_deliveries import Process
from tests.support.mock_broker import MockBroker

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]
SESSIONS = 3_000
TABLES = ("work_items", "sessions", "agent_dispatch_queue")


@pytest.fixture
def process() -> Iterator[Process]:
    with MockBroker("agent_turns", 2) as broker:
        yield Process("w1", broker.servers)


def test_what_ended_is_settled_and_what_is_in_hand_is_claimed_by_one_statement(process: Process) -> None:
    process.deliver(*[world.add(f"s{number}") for number in range(4)])
    first: list[Lease] = process.claim(want=2)
    with CaptureQueriesContext(connection) as seen:
        result = process.step(first, want=2)
    (call,) = (query["sql"] for query in seen.captured_queries)
    assert "dispatch_deliver_v1" in call
    assert len(result.settled) == len(result.claimed) == 2
    world.check()


def test_a_claim_looks_at_few_rows_however_many_are_claimable() -> None:
    world.authority().submit([world.new(f"s{number}") for number in range(SESSIONS)])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    jobs = list(WorkItem.objects.order_by("-pk").values_list("job_id", flat=True)[:8])
    with transaction.atomic(), connection.cursor() as cursor:
        asked: tuple[Any, ...] = (
            "w1",
            60.0,
            None,
            4,
            ["echo"],
            ["orchestrator_task"],
            jobs,
            ["t1"] * len(jobs),
            [],
            [],
        )
        cursor.execute(CALL, asked)
        assert [row[0] for row in cursor.fetchall()] == ["claimed"] * 4 + ["seen"] * 4
        read = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname = ANY (%s)"
        cursor.execute(read, [list(TABLES)])
        (looked_at,) = cursor.fetchone()
    assert looked_at < 200
