"""The whole API, asked what its own description allows and forbids, by schemathesis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fleet import Fleet

ROOT = Path(__file__).resolve().parents[2]
AT_LEAST = 20_000  # requests

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]


def test_no_request_breaks_the_api_or_its_description(fleet: Fleet, tmp_path: Path) -> None:
    job = fleet.api("t1").dispatch("echo", "s1")
    seed = os.environ.get("FLEETSITE_FUZZ_SEED", "1")
    ran = subprocess.run(
        [
            *(
                Path(sys.executable).parent / "schemathesis",
                "run",
                f"http://127.0.0.1:{fleet.port}/api/schema?format=json",
            ),
            *("--header", f"Authorization: Bearer {fleet.platform().key}"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "1000", "--seed", seed, "--workers", "2"),
            *("--continue-on-failure", "--request-timeout", "30", "--report", "json", "--report-dir", tmp_path),
            *("--exclude-path-regex", "/stream$", "--warnings", "off"),
        ],
        cwd=tmp_path,
        env=os.environ | {"SCHEMATHESIS_HOOKS": "tests.support.fuzz_hooks", "PYTHONPATH": str(ROOT), "COLUMNS": "150"},
        capture_output=True,
        text=True,
        timeout=880,
    )
    (counted,) = re.findall(r"([\d,]+) generated", ran.stdout)
    shown = "\n".join(line[:300] for line in ran.stdout.splitlines())
    assert ran.returncode == 0, shown
    assert int(counted.replace(",", "")) >= AT_LEAST
    assert fleet.api("t1").job(job)["job_id"] == job
