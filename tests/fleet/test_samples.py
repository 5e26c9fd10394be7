"""The sample of each minute: what is written, what a failed read leaves, and what is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dispatch import wiring
from dispatch.maintenance.upkeep import make_ticks
from dispatch.models import TurnCounter
from fleet import samples
from fleet.latency import latency, percentile
from fleet.models import FleetSample
from sessions_app.models import Turn
from tests.fleet import rows
from tests.fleet.test_console import person, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]


NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)


def busy() -> None:
    session = rows.session("one")
    running = rows.item(session, status="running")
    rows.item(rows.session("two"))
    rows.worker(running)
    TurnCounter.objects.create(outcome="completed", count=40)
    TurnCounter.objects.create(outcome="failed", count=2)
    rows.converge()


def test_a_sample_has_the_numbers_of_the_minute() -> None:
    busy()
    assert samples.sample_fleet() == 1
    made = FleetSample.objects.get()
    assert (made.at.second, made.at.microsecond) == (0, 0)
    assert (made.depth, made.ready, made.running, made.workers, made.slots) == (2, 1, 1, 1, 2)
    assert (made.completed_total, made.failed_total, made.evidence) == (40, 2, "healthy")
    assert made.oldest_ready_s is not None
    assert made.oldest_ready_s >= 0


def test_a_minute_has_one_sample_however_often_and_by_whomever_it_is_looked_at() -> None:
    assert samples.sample_fleet() == 1
    again = samples.sample_fleet()
    assert (FleetSample.objects.count(), again) in ((1, 0), (2, 1))  # a minute may have begun between the two
    taken = FleetSample.objects.first()
    assert taken is not None
    FleetSample.objects.bulk_create([FleetSample(at=taken.at, ready=9)], ignore_conflicts=True)
    assert FleetSample.objects.filter(at=taken.at).count() == 1


@pytest.mark.parametrize(
    ("table", "unread", "read"),
    [
        ("dispatch_workers", ("workers", "slots"), ("running", "completed_total")),
        ("turn_counters", ("completed_total", "failed_total"), ("running", "workers")),
        ("turns", ("wait_p50_s", "wait_p95_s", "run_p95_s"), ("running", "workers")),
    ],
)
def test_a_failed_read_is_null_and_fails_no_other(table: str, unread: tuple[str, ...], read: tuple[str, ...]) -> None:
    busy()
    rows.drop(table)
    samples.sample_fleet()
    made = FleetSample.objects.get()
    assert {getattr(made, name) for name in unread} == {None}
    assert all(getattr(made, name) is not None for name in read)


def ended(waited_s: float, ran_s: float, *, epoch: int = 1, ago_s: float = 30, run_at_s: float | None = None) -> None:
    """A run that ended so long before now, of an item whose turn waited before it."""
    end = NOW - timedelta(seconds=ago_s)
    start = end - timedelta(seconds=ran_s)
    waits_from = start - timedelta(seconds=waited_s)
    session = rows.session()
    done = rows.item(
        session,
        status="succeeded",
        created_at=waits_from if run_at_s is None else waits_from - timedelta(seconds=run_at_s),
        run_at=None if run_at_s is None else waits_from,
        finished_at=end,
    )
    Turn.objects.create(
        session=session,
        turn_number=1,
        epoch=epoch,
        work_item_id=done.pk,
        status="succeeded",
        attempt=1,
        started_at=start,
        finished_at=end,
    )


def lately() -> tuple[float | None, ...]:
    found = latency(since=NOW - timedelta(minutes=1), before=NOW)
    return found.wait_p50_s, found.wait_p95_s, found.run_p95_s


def test_waits_and_runs_are_those_of_the_turns_that_ended_in_the_minute() -> None:
    for n in range(1, 21):
        ended(waited_s=n, ran_s=n / 10)
    ended(waited_s=500, ran_s=500, ago_s=0)  # the next minute's
    ended(waited_s=500, ran_s=50, ago_s=61)  # the one before
    assert lately() == pytest.approx((10.0, 19.0, 1.9))


def test_a_wait_is_that_of_a_first_run_and_counts_from_when_it_was_to_start() -> None:
    ended(waited_s=3, ran_s=1, run_at_s=4_000)
    ended(waited_s=900, ran_s=2, epoch=2)  # it waited for a person, or for its next try
    assert lately() == pytest.approx((3.0, 3.0, 2.0))


def test_no_turn_ended_is_null_and_not_0() -> None:
    assert lately() == (None, None, None)
    samples.sample_fleet()
    assert FleetSample.objects.get().run_p95_s is None


def test_a_sample_has_the_waits_and_runs_of_the_minute_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "store_now", lambda: NOW + timedelta(seconds=12))
    ended(waited_s=2, ran_s=7)
    samples.sample_fleet()
    made = FleetSample.objects.get()
    assert (made.at, made.wait_p50_s, made.wait_p95_s, made.run_p95_s) == (NOW, 2.0, 2.0, 7.0)


@pytest.mark.parametrize(
    ("values", "share", "answer"),
    [([], 0.5, None), ([4.0], 0.95, 4.0), ([3.0, 1.0], 0.5, 1.0), ([float(n) for n in range(1, 101)], 0.95, 95.0)],
)
def test_a_percentile_is_the_value_at_the_nearest_rank(values: list[float], share: float, answer: float | None) -> None:
    assert percentile(values, share) == answer


def test_no_claimable_turn_is_0_and_waits_0_s() -> None:
    samples.sample_fleet()
    made = FleetSample.objects.get()
    assert (made.ready, made.oldest_ready_s, made.workers) == (0, 0.0, 0)


def test_after_two_days_one_sample_in_ten_minutes_is_kept() -> None:
    now = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
    old, young = now - timedelta(hours=50), now - timedelta(hours=40)
    FleetSample.objects.bulk_create(
        FleetSample(at=start + timedelta(minutes=n)) for start in (old, young) for n in range(30)
    )
    samples.thin(now)
    kept = list(FleetSample.objects.order_by("at").values_list("at", flat=True))
    assert [at.minute for at in kept if at < now - samples.FULL] == [0, 10, 20]
    assert len(kept) == 3 + 30


def test_the_leader_writes_the_samples_oftener_than_they_are_due() -> None:
    ticks = make_ticks(wiring.authority(), holder="here", tick_s=1, stale_s=60)
    (duty,) = [duty for duty in ticks._duties if duty.name == "samples"]
    assert duty.leader_only
    assert duty.period_s < 60 / 2, "a round that comes late may not skip a minute"
    ticks.look()
    assert FleetSample.objects.count() == 1


def sampled(minutes: int, **more: Any) -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    FleetSample.objects.bulk_create(
        FleetSample(
            **{
                "at": now - timedelta(minutes=n),
                "ready": 3,
                "running": 1,
                "workers": 1,
                "slots": 2,
                "oldest_ready_s": 2.0,
                "completed_total": 7,
                "failed_total": 0,
                "evidence": "healthy",
                **more,
            }
        )
        for n in range(minutes)
    )


def test_the_fleet_page_tells_that_work_stands_still(client: Client) -> None:
    busy()
    sampled(10)
    person(client)
    shown = text(client.get(reverse("admin:index")))
    assert "Stalled: 1 turn running and none has ended for 5 min" in shown


def test_the_fleet_page_draws_the_span_that_is_asked_for(client: Client) -> None:
    busy()
    sampled(30)
    person(client)
    shown = text(client.get(reverse("admin:index"), {"span": "1h"}))
    assert "Ready turns, last 1 h: ready now 3" in shown
    assert "↓ from 3 in 15 min" in shown
    for page in ("admin:index", "console:queue"):
        for span, words in (("3h", "3 h"), ("24h", "24 h"), ("7d", "7 d"), ("nonsense", "3 h")):
            assert f"Ready turns, last {words}" in text(client.get(reverse(page), {"span": span}))


@pytest.mark.parametrize("page", ["admin:index", "console:queue", "console:health"])
def test_samples_that_cannot_be_read_are_unknown(client: Client, page: str) -> None:
    person(client)
    rows.drop("fleet_samples")
    assert "the samples could not be read" in text(client.get(reverse(page)))


@pytest.mark.parametrize("page", ["admin:index", "console:queue"])
def test_charts_of_the_whole_fleet_are_for_who_sees_every_tenant(client: Client, page: str) -> None:
    sampled(10)
    person(client, group="fleet-operator", tenants=("t1",))
    shown = text(client.get(reverse(page)))
    assert "<figure" not in shown
    assert "of the whole fleet, for who sees every tenant" in shown
