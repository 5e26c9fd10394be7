"""What the documents say is what the code has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from django.core.management import load_command_class

from dispatch import states, wiring
from dispatch.agents.registry import KINDS
from dispatch.explaining import CLAIMABLE
from dispatch.maintenance.upkeep import make_ticks
from dispatch.management.commands import dispatch
from dispatch.management.commands.run_dispatch_worker import Command
from fleet.autoscale import AutoscaleQuery
from fleet.console.charts import SPANS
from fleet.queue import WAITS
from fleet.scaling import Reason

ROOT = Path(__file__).resolve().parents[2]


def text(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize("status", states.STATUSES)
def test_every_status_is_drawn(status: str) -> None:
    assert status in text("architecture.md"), f"docs/architecture.md does not draw the status {status}"


@pytest.mark.parametrize("reason", [*states.REFUSALS, CLAIMABLE])
def test_every_reason_of_explain_is_told_to_who_is_on_call(reason: str) -> None:
    never_explained = {states.Refusal.TENANT_MISMATCH, states.Refusal.UNKNOWN}  # a job that one sees has neither
    if reason in never_explained:
        assert f"`{reason}`" not in text("operations.md")
        return
    assert f"| `{reason}` |" in text("operations.md"), f"docs/operations.md: the table of reasons lacks {reason}"


def test_every_option_of_the_worker_is_in_its_table() -> None:
    parser = Command().create_parser("manage.py", "run_dispatch_worker")
    own = {
        option
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and action.dest in _own_options()
    }
    documented = set(re.findall(r"^\| `(--[a-z-]+)", text("operations.md"), re.M))
    assert own == documented, f"docs/operations.md: options {sorted(own ^ documented)} stand on one side only"


@pytest.mark.parametrize("command", ["fleet", "jobs", "webhooks"])
def test_every_verb_of_an_operators_command_is_in_its_table(command: str) -> None:
    parser = load_command_class(command if command == "fleet" else "dispatch", command).create_parser("", command)
    (verbs,) = [action.choices for action in parser._actions if action.dest == "verb"]
    assert verbs is not None
    documented = set(re.findall(rf"^\| `{command} ([a-z]+)", text("cli.md"), re.M))
    assert set(verbs) == documented, f"docs/cli.md: verbs {sorted(set(verbs) ^ documented)} stand on one side only"


def test_every_option_of_dispatch_is_in_its_table() -> None:
    parser = load_command_class("dispatch", "dispatch").create_parser("", "dispatch")
    named = {"tenant", "agent", "after", "wait", "timeout", "json"}
    ours = named.union(dispatch.TEXTS, dispatch.NUMBERS, dispatch.OBJECTS)
    own = {option for action in parser._actions for option in action.option_strings if action.dest in ours}
    section = text("cli.md").split("## `manage.py dispatch`")[1].split("\n## ")[0]
    documented = set(re.findall(r"`(--[a-z-]+)", "\n".join(re.findall(r"^\| `--.*", section, re.M))))
    assert own == documented, f"docs/cli.md, dispatch: options {sorted(own ^ documented)} stand on one side only"


def _own_options() -> set[str]:
    return {
        "workers",
        "capacity",
        "kinds",
        "agents",
        "once",
        "drain",
        "grace",
        "metrics_port",
        "metrics_address",
        "no_maintenance",
        "max_capacity",
    }


@pytest.mark.django_db
def test_every_tick_is_in_the_table_of_ticks() -> None:
    ticks = make_ticks(wiring.authority(), holder="docs", tick_s=1, stale_s=1)
    assert sorted(set(ticks.names())) == sorted(ticks.names()), "two duties share a name, and so a period"
    for name in ticks.names():
        assert f"| `{name}` |" in text("operations.md"), f"docs/operations.md: the table of ticks lacks {name}"


def test_every_reason_and_parameter_of_autoscaling_is_told() -> None:
    for name in (*AutoscaleQuery.model_fields, *get_args(Reason)):
        assert f"`{name}`" in text("fleet.md"), f"docs/fleet.md, Autoscaling, lacks {name}"


def test_what_the_queue_page_says_of_a_job_the_spans_of_the_charts_and_the_keys_are_told() -> None:
    told = text("console.md")
    for wait in WAITS:
        assert f"| `{wait}` |" in told, f"docs/console.md, Queue, lacks {wait}"
    for span in SPANS.values():
        assert span.words in told
        assert f"`{span.key}`" in told.replace("`?span=1h`", "`1h`"), f"docs/console.md, Charts, lacks {span.key}"
    keys = re.search(r"PAGES = \{(.*?)\};", (ROOT / "fleet/static/fleet/keys.js").read_text(), re.S)
    assert keys is not None
    letters, titles = zip(*re.findall(r'(\w): "([^"]+)"', keys[1]), strict=True)
    assert f"| `g` then {' '.join(f'`{letter}`' for letter in letters)} | goes to {', '.join(titles)} |" in told


def test_the_pictures_of_the_documents_are_there() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name} shows {target}, which does not exist"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_agent_is_named(kind: str) -> None:
    assert kind in text("agents.md")


def test_the_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), f"README.md links to {target}, which does not exist"
