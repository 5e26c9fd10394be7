"""The list of work items: who holds what for how long, how long each waited and ran, and what went wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dispatch.models import WorkItem
from tests.fleet import rows
from tests.fleet.test_console import HOSTILE, ITEMS, person, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]


def cells(client: Client, item: WorkItem, *names: str) -> list[str]:
    """What the columns say of one item, as text."""
    listed = client.get(reverse(ITEMS), {"q": item.job_id})
    (row,) = listed.context["cl"].result_list
    page = listed.context["cl"].model_admin
    return [str(getattr(page, name)(row)) for name in names]


def test_a_lease_says_how_long_it_is_good_and_when_it_has_expired(client: Client) -> None:
    person(client)
    now = timezone.now()
    held, lost = (rows.item(rows.session(), status="running") for _ in range(2))
    WorkItem.objects.filter(pk=held.pk).update(lease_expires_at=now + timedelta(seconds=80.5))
    WorkItem.objects.filter(pk=lost.pk).update(lease_expires_at=now - timedelta(minutes=8))
    assert cells(client, held, "lease")[0] in ("80 s left", "79 s left")
    assert cells(client, lost, "lease") == ['<span class="fc-text-danger">expired 8 min ago</span>']
    assert cells(client, rows.item(rows.session()), "lease", "ran") == ["–", "–"]


def test_how_long_it_waited_and_ran_ends_with_its_run(client: Client) -> None:
    person(client)
    now = timezone.now()
    done = rows.item(
        rows.session(), status="succeeded", created_at=now - timedelta(hours=2), run_at=now - timedelta(minutes=60),
        started_at=now - timedelta(minutes=57), finished_at=now - timedelta(minutes=47),
    )  # fmt: skip
    assert cells(client, done, "waited", "ran") == ["3 min", "10 min"]
    unstarted = rows.item(rows.session(), created_at=now - timedelta(minutes=5))
    assert cells(client, unstarted, "waited", "ran") == ["5 min", "–"]


def test_the_error_is_that_of_the_last_run_and_its_text_for_who_may_read_it(client: Client) -> None:
    failed = rows.failed_item(rows.session(), message=f"{HOSTILE} and more than forty characters of it")
    person(client)
    (said,) = cells(client, failed, "error")
    assert said.startswith('agent_error: "><img')
    assert len(said) == len("agent_error: ") + 40
    shown = text(client.get(reverse(ITEMS)))
    assert "&quot;&gt;&lt;img" in shown
    assert "<img src=x" not in shown
    person(client, "vera", group="fleet-viewer", tenants=("t1",))
    assert cells(client, failed, "error") == ["agent_error"]
    assert cells(client, rows.item(rows.session()), "error") == ["–"]


def test_a_list_of_many_takes_few_queries(client: Client, django_assert_max_num_queries: object) -> None:
    person(client)
    for _ in range(25):
        rows.failed_item(rows.session())
    with django_assert_max_num_queries(15):  # type: ignore[operator]
        text(client.get(reverse(ITEMS)))


def test_what_is_held_expired_or_held_by_nobody_alive_is_found(client: Client) -> None:
    person(client)
    now = timezone.now()
    fine, late, lost = (rows.item(rows.session(name), status="running") for name in ("fine", "late", "lost"))
    WorkItem.objects.filter(pk__in=[fine.pk, lost.pk]).update(lease_expires_at=now + timedelta(seconds=60))
    WorkItem.objects.filter(pk=late.pk).update(lease_expires_at=now - timedelta(seconds=60))
    rows.worker(fine, late)
    rows.item(rows.session("idle"))

    def found(lease: str) -> set[int]:
        return {item.pk for item in client.get(reverse(ITEMS), {"lease": lease}).context["cl"].result_list}

    assert found("held") == {fine.pk, lost.pk}
    assert found("expired") == {late.pk}
    assert found("lost") == {lost.pk}
