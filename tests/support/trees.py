"""The process trees that process_tree.py grows, and what is left of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("process_tree.py")
SIZE = 4


def tree(place: Path) -> list[str]:
    """The command."""
    return [sys.executable, "-I", "-S", str(SCRIPT), str(place)]


def alive(place: Path, job_id: str = "tree") -> list[int]:
    """Who of the tree still runs."""
    return [pid for pid in _noted(place, job_id) if _runs(pid)]


def grown(place: Path, job_id: str = "tree") -> bool:
    return len(_noted(place, job_id)) == SIZE


def told_at(place: Path, job_id: str) -> float:
    """When the command got its SIGTERM, by the monotonic clock."""
    return float((place / f"{job_id}.told").read_text())


def _noted(place: Path, job_id: str) -> list[int]:
    names = (path.name.removeprefix(f"{job_id}.") for path in place.glob(f"{job_id}.*"))
    return [int(name) for name in names if name.isdigit()]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
