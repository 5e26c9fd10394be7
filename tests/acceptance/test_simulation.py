"""A hundredth of the fleet that benchmarks/simulate.py puts on paper: each fault comes in it, and the proof holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]


def test_a_hundred_workers_and_ten_thousand_sessions_lose_double_and_reorder_nothing() -> None:
    argv = [sys.executable, "benchmarks/simulate.py", "--workers", "100", "--sessions", "10000"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, report["problems"]) == (0, [])
    assert report["succeeded"] == report["turns"] > 10_000
    assert report["runs"] > report["turns"]
    for seen in ("crashes", "cuts", "leases_lost", "rescued", "retry", "snooze", "settled_late_refused"):
        assert report[seen] > 0, seen
