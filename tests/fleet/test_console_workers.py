"""The list of workers: the silent ones first, what each runs, and which is of another version."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from dispatch.models import DispatchWorker
from fleet import selectors
from tests.fleet import rows
from tests.fleet.test_console import person, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

WORKERS = "admin:dispatch_dispatchworker_changelist"


def listed(client: Client, **asked: str) -> list[DispatchWorker]:
    return list(client.get(reverse(WORKERS), asked).context["cl"].result_list)


def test_who_was_silent_longest_comes_first_and_how_near_it_is_to_late_is_said(
    client: Client, settings: Settings
) -> None:
    person(client)
    most = settings.FLEETSITE.worker_stale_s
    fine, near, late = (rows.worker(beat_s=seconds) for seconds in (1, most * 0.8, most * 3))
    assert [worker.pk for worker in listed(client)] == [late.pk, near.pk, fine.pk]
    shown = text(client.get(reverse(WORKERS)))
    assert shown.count("late in ") == 1
    assert shown.count("late by ") == 1


def test_workers_are_found_by_state_host_and_the_begin_of_their_id(client: Client, settings: Settings) -> None:
    person(client)
    live = rows.worker(host="blue", worker_id="blue:1:agent-dispatch:0")
    late = rows.worker(host="red", worker_id="red:2:agent-dispatch:0", beat_s=settings.FLEETSITE.worker_stale_s * 2)
    draining = rows.worker(host="red", worker_id="red:3:agent-dispatch:0", draining=True)
    for asked, found in (
        ({"state": "live"}, {live}),
        ({"state": "late"}, {late}),
        ({"state": "draining"}, {draining}),
        ({"q": "red"}, {late, draining}),
        ({"q": "blue:1"}, {live}),
        ({"q": "agent"}, set()),
    ):
        assert {worker.pk for worker in listed(client, **asked)} == {worker.pk for worker in found}, asked


def test_a_version_that_most_do_not_have_and_the_agents_of_each_are_shown(client: Client) -> None:
    person(client)
    for _ in range(2):
        rows.worker(version="0.6.0", agents=["echo"])
    rows.worker(version="0.5.0", agents=["a", "b", "c", "d", "e", "f"])
    shown = text(client.get(reverse(WORKERS)))
    assert shown.count("others 0.6.0") == 1
    assert "0.5.0, others" in shown
    assert "a, b, c, d and 2 more" in shown


def test_no_number_of_silent_consumers_hides_a_live_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "MAX_WORKERS", 3)
    for number in range(5):
        rows.worker(worker_id=f"a-{number}", beat_s=100_000)
    for name in ("z-2", "z-1"):
        rows.worker(worker_id=name)
    assert [worker.worker_id for worker in selectors.workers_live()] == ["z-1", "z-2"]
