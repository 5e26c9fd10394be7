"""The files in deploy/ name series, labels and addresses that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from fleet.autoscale import AutoscaleQuery
from tests.fleet import rows

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SERIES = re.compile(r"\b((?:agent_utilities|django)_\w+)(?:\{([^}]*)\})?")
GIVEN_BY_SCRAPE = {"job", "instance"}
WORKERS_PORT = """
import django; django.setup()
from prometheus_client import generate_latest
import dispatch.transports.kafka.metrics
from dispatch.worker.observed import MeasuredEvents
events = MeasuredEvents(1)
events.ended(None, "Succeeded", 0.1)
print(generate_latest().decode())
"""

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fleet_queue")]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus-rules.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"])


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


@pytest.fixture
def series(client: Client) -> dict[str, set[str]]:
    """The labels of each series that a web server or a worker's port shows."""
    header = rows.key("ops", "read", platform=True)
    rows.tick("retention")  # its age is told once it was done
    client.get("/api/fleet/health", headers=header)
    scraped = client.get("/metrics", headers=header).content.decode()
    done = subprocess.run([sys.executable, "-c", WORKERS_PORT], cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = {}
    for text in (scraped, done.stdout):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_alerts_and_panels_name_series_and_labels_that_exist(series: dict[str, set[str]]) -> None:
    named = 0
    for expression in expressions():
        for name, labels in SERIES.findall(expression):
            named += 1
            assert name in series, f"deploy/: {name} is no series of this version"
            asked = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", labels)) - GIVEN_BY_SCRAPE
            assert asked <= series[name], f"deploy/: {name} has no label {sorted(asked - series[name])}"
        grouped = {label.strip() for part in re.findall(r"\bby \(([^)]*)\)", expression) for label in part.split(",")}
        known = set().union(*(series[name] for name, _ in SERIES.findall(expression)))
        assert grouped <= known | GIVEN_BY_SCRAPE, f"deploy/: {expression} groups by what is not there"
    assert named > 20


def test_every_alert_says_what_is_wrong_and_how_bad() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "warn")
        assert rule["annotations"]["summary"].endswith(".")


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_scaler_asks_a_question_that_the_api_answers(client: Client) -> None:
    _, scaled = yaml.safe_load_all((DEPLOY / "keda-scaledobject.yaml").read_text())
    (trigger,) = scaled["spec"]["triggers"]
    address = urlsplit(trigger["metadata"]["url"])
    query = dict(parse_qsl(address.query))
    assert AutoscaleQuery.model_validate(query).max == scaled["spec"]["maxReplicaCount"]
    answer = client.get(f"{address.path}?{address.query}", headers=rows.key("ops", "read", platform=True))
    assert answer.status_code == 200
    assert isinstance(answer.json()[trigger["metadata"]["valueLocation"]], int)
