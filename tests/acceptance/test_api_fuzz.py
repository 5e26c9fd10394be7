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
# Of each operation; FLEETSITE_FUZZ_EXAMPLES=2000 makes some 20,000 requests of them all, in six minutes.
EXAMPLES = int(os.environ.get("FLEETSITE_FUZZ_EXAMPLES", "100"))
AT_LEAST = 9 * EXAMPLES + 2_000  # requests, and those that try each bound of each field

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]


def test_no_request_breaks_the_api_or_its_description(fleet: Fleet, tmp_path: Path) -> None:
    job = fleet.api("t1").dispatch("echo", "s1")
    seed = os.environ.get("FLEETSITE_FUZZ_SEED", "1")
    program = Path(sys.executable).parent / "schemathesis"
    options = f"--phases examples,coverage,fuzzing --max-examples {EXAMPLES} --seed {seed} --workers 2"
    told = "--continue-on-failure --request-timeout 30 --exclude-path-regex /stream$ --warnings off"
    ran = subprocess.run(
        [
            *(program, "run", f"http://127.0.0.1:{fleet.port}/api/schema?format=json"),
            *("--header", f"Authorization: Bearer {fleet.platform().key}", *options.split(), *told.split()),
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
