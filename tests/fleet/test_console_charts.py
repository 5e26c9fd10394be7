"""Charts: what is drawn of samples, to the letter; gaps, marks, scales, and what they say in words."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.template.loader import render_to_string

from fleet.console.charts import SPANS, Chart, Curve, Mark, draw, rate, span_of, whole
from fleet.console.labels import duration, fine_duration
from fleet.console.strips import evidence_strip
from fleet.console.trends import charts, flow, moved, per_minute, stalled
from fleet.models import FleetSample

GOLDEN = Path(__file__).parent / "golden"
NOW = datetime(2026, 11, 30, 14, 20, 12, tzinfo=UTC)
MINUTE = NOW.replace(second=0)
HOUR = SPANS["1h"]


def sample(back_min: int, **more: object) -> FleetSample:
    """The minute so many before now: ten turns ready, two of four slots taken, six turns done in each minute."""
    values: dict[str, object] = {
        "at": MINUTE - timedelta(minutes=back_min),
        "depth": 12,
        "ready": 10,
        "running": 2,
        "workers": 2,
        "slots": 4,
        "oldest_ready_s": 30.0,
        "completed_total": 6 * (1000 - back_min),
        "failed_total": 5,
        "evidence": "healthy",
    }
    return FleetSample(**{**values, **more})


def samples(minutes: int = 61, without: tuple[int, ...] = ()) -> list[FleetSample]:
    return [sample(back) for back in range(minutes - 1, -1, -1) if back not in without]


def drawn(found: list[FleetSample], span: str = "1h", marks: tuple[Mark, ...] = ()) -> dict[str, Chart]:
    return charts(found, SPANS[span], NOW, marks)


def golden_cases() -> dict[str, Chart]:
    wave = [sample(back, ready=back * 3 % 40, oldest_ready_s=back * 7.0) for back in range(60, -1, -1)]
    broken = [one for one in wave if not 20 <= (MINUTE - one.at) / timedelta(minutes=1) < 26]
    broken[30].ready = broken[30].oldest_ready_s = None
    act = Mark(at=NOW - timedelta(minutes=40), words='pause session s-1 by bob ("><img src=x>)')
    rising = [sample(back, failed_total=100 - back // 7) for back in range(60, -1, -1)]
    return {
        "waiting": drawn(broken, marks=(act,))["waiting"],
        "throughput": drawn(rising)["throughput"],
        "slots": drawn(samples())["slots"],
        "latency": drawn(
            [
                sample(back, wait_p50_s=0.004, wait_p95_s=0.02 + back / 100, run_p95_s=float(back % 12))
                for back in range(50)
            ]
        )["latency"],
        "nothing": drawn([])["workers"],
    }


@pytest.mark.parametrize("name", ["waiting", "throughput", "slots", "latency", "nothing"])
def test_a_chart_is_drawn_as_it_was(name: str) -> None:
    """After a wished change, write them anew with GOLDEN=write and look at the difference."""
    made = render_to_string("fleet/chart.html", {"chart": golden_cases()[name]})
    path = GOLDEN / f"{name}.html"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(made)
    assert made == path.read_text()


def test_a_minute_without_a_sample_is_a_gap_in_every_shape_and_is_hatched() -> None:
    chart = drawn(samples(without=(20, 21)))["waiting"]
    assert [(gap.x, gap.width) for gap in chart.gaps] == [(380.0, 20.0)]
    for shape in chart.shapes:
        assert shape.line.count("M") == 2, shape
    assert "no data for 2 min" in chart.words


def test_a_value_that_could_not_be_read_is_a_gap_and_never_0() -> None:
    found = samples()
    found[30].ready = None
    chart = drawn(found)["waiting"]
    ready, oldest = chart.shapes
    assert ready.line.count("M") == 2
    assert oldest.line.count("M") == 1
    assert not chart.gaps, "the other curve has its value there"
    assert "ready now 10" in chart.words


def test_a_single_minute_between_gaps_is_seen() -> None:
    chart = drawn([sample(30)])["workers"]
    assert chart.shapes[0].line == "M290.0 0.0L295.0 0.0L300.0 0.0"
    assert len(chart.gaps) == 2


def test_what_the_drawing_shows_is_said_in_words() -> None:
    found = samples()
    found[10].ready = 462
    words = drawn(found)["waiting"].words
    assert words == (
        "Ready turns, last 1 h: ready now 10, highest 462 at 13:30; oldest waits now 30 s, highest 30 s at 13:21"
    )
    assert drawn([])["waiting"].words == "Ready turns, last 1 h: no data"


def test_the_table_has_the_highest_value_of_each_stretch_newest_first() -> None:
    found = samples(without=(58, 59))
    found[-1].ready = 44
    rows = drawn(found)["waiting"].rows
    assert len(rows) == 30
    assert (rows[0].time, rows[0].values[0]) == ("14:19", "44")
    assert (rows[-1].time, rows[-1].values[0]) == ("13:21", "no data")


def test_marks_of_one_minute_share_a_line_and_those_outside_are_left_out() -> None:
    marks = tuple(Mark(at=NOW - timedelta(minutes=back), words=f"act {back}") for back in (500, 10, 10, 0))
    shown = drawn(samples(), marks=marks)["waiting"].marks
    assert [mark.title for mark in shown] == ["14:10 act 10; 14:10 act 10", "14:20 act 0"]


@pytest.mark.parametrize(
    ("highest", "labels"),
    [(0, ["2", "1", "0"]), (3, ["4", "2", "0"]), (11, ["20", "10", "0"]), (462, ["600", "300", "0"])],
)
def test_a_scale_ends_at_a_round_number(highest: float, labels: list[str]) -> None:
    curve = Curve(name="n", values=[highest] * HOUR.points, style="area", write=whole)
    assert draw(key="k", title="t", curves=[curve], span=HOUR, end=NOW, marks=[]).left == labels


def test_a_scale_of_times_ends_at_a_round_time() -> None:
    curve = Curve(name="n", values=[200.0] * HOUR.points, style="dashed", write=duration, right=True)
    chart = draw(key="k", title="t", curves=[curve], span=HOUR, end=NOW, marks=[])
    assert (chart.left, chart.right) == ([], ["4 min", "2 min", "0 s"])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 ms"),
        (0.0042, "4 ms"),
        (0.35, "0.35 s"),
        (0.999, "1 s"),
        (2.54, "2.5 s"),
        (9.96, "10 s"),
        (200, "3 min"),
    ],
)
def test_a_short_time_is_told_exactly_enough(seconds: float, words: str) -> None:
    assert fine_duration(seconds) == words


@pytest.mark.parametrize(("highest", "top"), [(0.003, "10 ms"), (0.3, "0.40 s"), (3.0, "4 s"), (70.0, "2 min")])
def test_a_scale_of_short_times_ends_at_a_round_time(highest: float, top: str) -> None:
    curve = Curve(name="n", values=[highest] * HOUR.points, style="area", write=fine_duration)
    assert draw(key="k", title="T", curves=[curve], span=HOUR, end=NOW, marks=()).left[0] == top


def test_a_chart_without_a_value_says_why() -> None:
    """Samples were taken, and in none of their minutes did a turn end."""
    latency, workers = (drawn(samples())[key] for key in ("latency", "workers"))
    assert latency.empty.startswith("No turn ended")
    assert workers.empty == ""


@pytest.mark.parametrize(("key", "points"), [("1h", 60), ("3h", 180), ("24h", 144), ("7d", 168)])
def test_a_span_has_so_many_points_whose_value_is_the_highest_in_it(key: str, points: int) -> None:
    span = SPANS[key]
    assert span.points == points
    assert span.points % span.per_row == 0
    found = [sample(back, ready=back % 10) for back in range(179, -1, -1)]
    shape = charts(found, span, NOW, [])["waiting"].shapes[0]
    assert shape.line.startswith("M")


def test_an_unknown_span_is_the_usual_one() -> None:
    assert span_of("9y") is SPANS["3h"]
    assert span_of("") is SPANS["3h"]


def test_a_pace_is_per_minute_and_unknown_over_a_long_gap() -> None:
    found = [sample(30), sample(28), sample(5), sample(4, completed_total=None), sample(3), sample(2)]
    assert [value for _, value in per_minute(found, lambda one: one.completed_total)] == [6.0, None, None, None, 6.0]


def test_a_number_is_compared_with_the_one_15_min_ago() -> None:
    found = samples()
    assert moved(found, NOW, 12, lambda one: one.ready) == "↑ from 10 in 15 min"
    assert moved(found, NOW, 4, lambda one: one.ready) == "↓ from 10 in 15 min"
    assert moved(found, NOW, 10, lambda one: one.ready) == "→ as 15 min ago"
    assert moved(found, NOW, None, lambda one: one.ready) == ""
    assert moved(samples(5), NOW, 12, lambda one: one.ready) == ""


def test_the_flow_is_that_of_the_last_15_min_and_unknown_without_samples() -> None:
    seen = flow(samples(), NOW)
    assert (seen.done_per_min, seen.failed_share) == (6.0, 0.0)
    seen = flow([], NOW)
    assert (seen.done_per_min, seen.failed_share) == (None, None)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([sample(n, completed_total=9) for n in range(7, -1, -1)], True),
        ([sample(n) for n in range(7, -1, -1)], False),  # turns end
        ([sample(n, completed_total=9, running=0) for n in range(7, -1, -1)], False),  # none runs
        ([sample(n, completed_total=9, failed_total=9 - n) for n in range(7, -1, -1)], False),  # they fail
        ([sample(n, completed_total=9) for n in range(3, -1, -1)], False),  # not for long enough
        ([sample(n, completed_total=None) for n in range(7, -1, -1)], False),  # not known
        ([sample(n, completed_total=9) for n in range(20, 9, -1)], False),  # nobody has looked since
        ([], False),
    ],
    ids=["stalled", "flowing", "idle", "failing", "short", "unknown", "old", "nothing"],
)
def test_work_stands_still_when_turns_run_and_none_ends_for_5_min(found: list[FleetSample], expected: bool) -> None:
    assert stalled(found, NOW) is expected


@pytest.mark.parametrize(("value", "words"), [(0, "0"), (0.25, "0.2"), (2.0, "2"), (31.4, "31")])
def test_a_rate_has_a_decimal_only_where_it_says_something(value: float, words: str) -> None:
    assert rate(value) == words


def test_the_strip_of_the_evidence_shows_a_minute_without_data_as_such() -> None:
    found = [sample(n, evidence="partial" if n in (3, 4) else "healthy") for n in range(89, -1, -1) if n != 10]
    made = evidence_strip(found, NOW, minutes=90)
    assert len(made.strip.cells) == 90
    assert made.strip.words == "Evidence of the last 90 minutes: 87 healthy, 2 partial, 1 no data"
    assert made.troubles == ["14:16 to 14:18: partial", "14:10 to 14:11: no data"]
    assert made.strip.cells[79].variant == "none"


def test_the_running_minute_is_no_gap_in_the_strip() -> None:
    made = evidence_strip(samples(without=(0,)), NOW, minutes=60)
    assert len(made.strip.cells) == 59
    assert not made.troubles
