"""The compose file: it can be read, its settings exist, and its commands are those that the tests run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fleetsite.config import KNOWN

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy" / "compose.kafka.yml"


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_the_processes_are_started_as_the_tests_start_them() -> None:
    fleet = (ROOT / "tests" / "support" / "fleet.py").read_text()
    commands = {name: one["command"] for name, one in services().items() if "command" in one}
    assert commands["worker"][:3] == ["python", "manage.py", "run_dispatch_worker"]
    assert '"manage.py", "run_dispatch_worker"' in fleet
    assert commands["web"][1:5] == ["-m", "gunicorn", "-c", "fleetsite/gunicorn_conf.py"]
    assert commands["web"][-1] == "fleetsite.wsgi:application"
    assert all(part in fleet for part in ("gunicorn", "fleetsite/gunicorn_conf.py", "fleetsite.wsgi:application"))
    assert commands["migrate"] == ["python", "manage.py", "migrate"]


def test_the_settings_are_settings_of_ours() -> None:
    for name in ("web", "worker", "migrate"):
        unknown = set(services()[name]["environment"]) - KNOWN
        assert not unknown, f"deploy/compose.kafka.yml, {name}: {sorted(unknown)} are not settings"


def test_what_is_depended_on_is_there_and_no_secret_is_written_down() -> None:
    found = services()
    for name, one in found.items():
        assert set(one.get("depends_on", {})) <= set(found), name
    text = COMPOSE.read_text()
    assert "${POSTGRES_PASSWORD:?}" in text
    assert "${DJANGO_SECRET_KEY:?}" in text
