"""Two thousand turns under two hundred faults: workers, web, server, backends, the queue's file.

FLEETSITE_CHAOS="--seconds 3600 --faults 5000 --turns 50000 --seed 7" makes it longer.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos import SESSION_S, TICK_S, TTL_S
from tests.support.kafka import NoKafka, library
from tests.support.parts import missing
from tests.support.postgres import NoPostgres, server_programs
from tests.support.processes import Proc

ROOT = Path(__file__).resolve().parents[2]
TURNS, FAULTS, MOST_S = 2_000, 200, 600
SLACK_S = 2.0  # a tick that another fault delayed, and a machine that starts Python all the time
AFTER_TERM_S = 2.0
KAFKA_TURNS, KAFKA_FAULTS = 600, 60
REBALANCE_S = 2 * SESSION_S + 1.0  # the group has to notice the death, and to share the partitions out again

pytestmark = [pytest.mark.store, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(0)]


def _run(log: Path, *options: object, turns: int = TURNS, faults: int = FAULTS) -> dict[str, Any]:
    """On a cluster of its own when the tests run on Postgres: it is restarted meanwhile."""
    more = shlex.split(os.environ.get("FLEETSITE_CHAOS", ""))
    store = []
    if os.environ.get("STATE_DB_URI"):
        try:
            server_programs()
        except NoPostgres as refusal:
            missing(str(refusal))
        store = ["--postgres"]
    argv = [sys.executable, "-m", "tests.support.chaos", *store, *options]
    argv += ["--turns", turns, "--faults", faults, *more]
    with Proc("chaos", [str(part) for part in argv], log=log, env=os.environ, cwd=ROOT) as chaos:
        assert chaos.wait(MOST_S if not more else 24 * 3600) == 0, chaos.tail()
    report: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    return report


@pytest.mark.kafka
def test_a_broker_that_restarts_and_a_group_that_moves_lose_double_and_reorder_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        library()
    except NoKafka as refusal:
        missing(str(refusal))
    report = _run(tmp_path / "chaos.log", "--kafka", turns=KAFKA_TURNS, faults=KAFKA_FAULTS)
    kill = report["after_kill"]
    with capsys.disabled():
        print(f"\nKafka: {report['turns']} turns, {report['faults']} in {report['seconds']:.0f} s")
        print(_told("recovery after kill -9", kill["seconds"], kill["mixed"]))
    assert report["problems"] == []
    assert report["turns"] >= KAFKA_TURNS
    assert report["faults"].keys() >= {"broker restarted", "group rebalanced"}
    assert report["check"] == {"exit": 0, "said": "no findings\n"}
    assert max(kill["seconds"], default=0.0) <= TTL_S + TICK_S + SLACK_S + REBALANCE_S


def _told(title: str, seconds: list[float], mixed: int) -> str:
    p50 = statistics.median(seconds) if seconds else 0.0
    return f"{title}: p50 {p50:.2f} s, max {max(seconds, default=0.0):.2f} s of {len(seconds)}, {mixed} mixed"


def test_whatever_dies_nothing_is_lost_doubled_or_out_of_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = _run(tmp_path / "chaos.log")
    kill, term = report["after_kill"], report["after_term"]
    with capsys.disabled():
        print(f"\n{report['turns']} turns, {sum(report['faults'].values())} faults in {report['seconds']:.0f} s")
        print(_told("recovery after kill -9", kill["seconds"], kill["mixed"]))
        print(_told("recovery after SIGTERM", term["seconds"], term["mixed"]))
    assert report["problems"] == []
    assert report["turns"] >= TURNS
    assert sum(report["faults"].values()) >= FAULTS
    assert report["by_rest"] >= 50, "turns came in by REST while the web process was killed"
    assert report["check"] == {"exit": 0, "said": "no findings\n"}
    assert kill["seconds"], "no kill took a turn away"
    assert max(kill["seconds"]) <= TTL_S + TICK_S + SLACK_S
    assert term["seconds"], "no SIGTERM took a turn away"
    assert max(term["seconds"]) < AFTER_TERM_S
