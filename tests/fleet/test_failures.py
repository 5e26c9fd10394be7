"""What failed lately is told by its cause: agent, code and type of error, the newest first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from fleet.failures import Failure, by_cause, failed_jobs
from tests.fleet import rows
from tests.fleet.test_console import person, text

NOW = datetime(2030, 1, 31, 8, tzinfo=UTC)


def failure(number: int, agent: str = "a", code: str = "agent_error", message: str = "") -> Failure:
    """The greater the number the older it is."""
    at = NOW - timedelta(minutes=number)
    return Failure(
        pk=100 - number,
        job_id=f"j{number}",
        agent_name=agent,
        status="failed",
        code=code,
        message=message,
        finished_at=at,
    )


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("ValueError: bad", "ValueError"),
        ("httpx.ReadTimeout: slow", "httpx.ReadTimeout"),
        ("no type here", ""),
        ("two words: x", ""),
        ("", ""),
    ],
)
def test_the_type_of_an_error_is_what_its_message_begins_with(message: str, kind: str) -> None:
    assert failure(0, message=message).error_type == kind


def test_failures_of_one_cause_stand_together_and_the_newest_cause_comes_first() -> None:
    found = by_cause(
        [
            failure(0, message="ValueError: 1"),
            failure(1, "b", message="ValueError: 1"),
            failure(2, message="ValueError: another text"),
            failure(3, message="KeyError: 1"),
            failure(4, code="timeout", message="ValueError: 1"),
            failure(5, message="ValueError: 3"),
        ]
    )
    assert [(cause.newest.job_id, cause.count) for cause in found] == [("j0", 3), ("j1", 1), ("j3", 1), ("j4", 1)]
    assert found[0].since == NOW - timedelta(minutes=5)


@pytest.mark.django_db
@pytest.mark.store
def test_the_first_page_counts_the_failures_of_a_cause_and_links_the_newest(client: Client, fleet_queue: None) -> None:
    session = rows.session("s")
    failed = [rows.failed_item(session, message=f"ValueError: number {n}", agent_name="parse") for n in range(3)]
    rows.failed_item(rows.session("s2", tenant="t2"), message="KeyError: x", agent_name="parse")
    found = failed_jobs(tenant="t1")
    assert (found.count, found.grouped, [cause.count for cause in found.causes]) == (3, 3, [3])
    rows.converge()
    person(client, group="fleet-operator", tenants=("t1",))
    shown = text(client.get(reverse("admin:index")))
    assert "agent_error: ValueError" in shown
    assert "3 since" in shown
    assert failed[-1].job_id in shown
    assert failed[0].job_id not in shown
    assert "KeyError" not in shown
    person(client, "vera", group="fleet-viewer", tenants=("t1",))
    hidden = text(client.get(reverse("admin:index")))
    assert "ValueError" not in hidden, "a text's first word is the text's"
    assert "3 since" in hidden
