"""Operations whose process died are ended, with the outcomes that are known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dispatch import services
from dispatch.access import Caller
from fleet.abandoned import SILENT, end_abandoned
from fleet.console import operations, sessions
from fleet.models import BulkOperation
from tests.fleet import rows
from tests.fleet.test_console import confirm, person, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

SESSIONS = "admin:sessions_app_session_changelist"
LONG_AGO = SILENT + timedelta(seconds=5)


def left(*, verb: str = "pause", kind: str = "session", silent: timedelta = LONG_AGO, **more: Any) -> BulkOperation:
    """An operation that a process has begun and not ended."""
    now = timezone.now()
    values: dict[str, Any] = {
        "request_id": "r-1",
        "verb": verb,
        "object_type": kind,
        "selection": {"tenants": ["t1", "t2"]},
        "reason": "drill",
        "actor": "ann",
        "total": 4,
        "status": "running",
        "created_at": now - silent,
    }
    return BulkOperation.objects.create(**{**values, **more})


def caller(tenant: str, request_id: str = "r-1") -> Caller:
    return Caller(
        tenant=tenant, name="ann", kind="staff", scopes=frozenset({"operate", "dispatch"}), request_id=request_id
    )


def test_an_operation_that_is_silent_for_a_minute_ends_as_interrupted_with_what_the_audit_has(client: Client) -> None:
    one, two, theirs = rows.session("one"), rows.session("two"), rows.session("one", tenant="t2")
    rows.session("three")
    operation = left()
    services.sessions_control(caller=caller("t1"), verb="pause", session_ids=["one", "two"], reason="drill")
    services.sessions_control(caller=caller("t2"), verb="pause", session_ids=["one"], reason="drill")
    services.sessions_control(caller=caller("t1", "another"), verb="pause", session_ids=["three"], reason="drill")
    assert end_abandoned() == 1
    operation.refresh_from_db()
    assert operation.status == "interrupted"
    assert operation.finished_at is not None
    assert sorted(operation.results) == [
        [one.pk, "one", "applied"],
        [two.pk, "two", "applied"],
        [theirs.pk, "one", "applied"],
    ]
    assert operation.counts == {"applied": 3}
    person(client)
    shown = text(client.get(reverse("admin:fleet_bulkoperation_change", args=[operation.pk])))
    assert "No outcome is known of 1 of 4" in shown
    assert "3 applied" in shown


def test_what_it_noted_itself_is_kept_beside_the_audit() -> None:
    job = rows.failed_item(rows.session("s"))
    rows.converge()
    operation = left(verb="retry", kind="job", results=[[7, "orch-gone", "changed"]], beat_at=timezone.now() - LONG_AGO)
    services.job_retry(caller=caller("t1"), job_id=job.job_id, reason="drill")
    assert end_abandoned() == 1
    operation.refresh_from_db()
    assert operation.results == [[7, "orch-gone", "changed"], [job.pk, job.job_id, "queued"]]


@pytest.mark.parametrize(
    "more",
    [
        {"silent": timedelta(seconds=5)},
        {"beat_at": timezone.now() + timedelta(hours=1)},
        {"status": "done"},
        {"status": "interrupted"},
    ],
    ids=["young", "beating", "done", "interrupted"],
)
def test_what_goes_on_or_has_ended_is_left_alone(more: dict[str, Any]) -> None:
    operation = left(**more)
    assert end_abandoned() == 0
    status = operation.status
    operation.refresh_from_db()
    assert operation.status == status


def test_an_operation_says_that_it_goes_on_and_writes_its_end_over_an_interruption(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was only slow: its own account is the whole one."""
    monkeypatch.setattr(operations, "BEAT_S", 0.0)
    monkeypatch.setattr(sessions, "PART", 1)
    real, seen = services.sessions_control, []

    def slow(**more: Any) -> Any:
        answer = real(**more)
        running = BulkOperation.objects.get()
        seen.append((running.beat_at is not None, len(running.results)))
        if len(seen) == 2:
            BulkOperation.objects.update(beat_at=timezone.now() - LONG_AGO)
            assert end_abandoned() == 1
        return answer

    monkeypatch.setattr(services, "sessions_control", slow)
    person(client, group="fleet-operator", tenants=("t1",))
    confirm(client, SESSIONS, "pause_sessions", *[rows.session(f"s{n}") for n in range(3)])
    assert seen == [(False, 0), (True, 1), (True, 2)]
    operation = BulkOperation.objects.get()
    assert (operation.status, operation.counts) == ("done", {"applied": 3})
