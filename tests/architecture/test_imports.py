"""The house's floors: what may import what, by the contracts in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_imports_keep_the_contracts() -> None:
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(
        [*lint, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert done.returncode == 0, (
        f"{done.stdout}{done.stderr}\nMove what both sides need to the lower one, or hand it over through a port in "
        "dispatch/ports.py and wire it in dispatch/wiring.py; the contracts are in pyproject.toml."
    )
