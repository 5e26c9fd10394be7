"""Claiming is paused and goes on again beside live workers, over restarts."""

from __future__ import annotations

import time

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, new_session

pytestmark = pytest.mark.process


def turn_gate(fleet: Fleet, verb: str, scope: str, name: str | None = None) -> str:
    body = {"scope": scope, "reason": "a test"} | ({"name": name} if name else {})
    answer = fleet.platform().request("POST", f"/api/fleet/gates/{verb}", body)
    assert answer.status == 200, answer.text
    return str(answer.json()["outcome"])


def test_a_paused_agent_starts_nothing_also_after_a_restart_and_other_agents_go_on(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    running = api.dispatch("wait", s=1)
    fleet.until_begun(running)
    assert turn_gate(fleet, "shut", "agent", "wait") == "applied"
    held = api.dispatch("wait", new_session(), s=0)
    api.until(running, "succeeded", within=10)
    fleet.stop([worker])
    fleet.worker(1)
    api.finish([api.dispatch("note")], 10)
    told = api.explain(held)
    assert (told["runnable"], told["reason"]) == (False, "session_paused")
    assert told["detail"].startswith("claiming is paused for agent wait by ops")
    assert not fleet.journal.runs(held)
    evidence = fleet.topology()["evidence"]
    assert "claiming_paused:agent" in evidence["dependencies"]["control_store"]["diagnostics"]
    assert evidence["ready"] is True
    opened = time.monotonic()
    assert turn_gate(fleet, "open", "agent", "wait") == "applied"
    api.until(held, "succeeded", within=5)
    assert time.monotonic() - opened < 3, "the idle worker is woken"


def test_a_paused_tenant_does_not_hold_another(fleet: Fleet, api: Api) -> None:
    assert turn_gate(fleet, "shut", "tenant", "t1") == "applied"
    fleet.worker(1)
    held, other = api.dispatch("note"), fleet.api("t2").dispatch("note")
    fleet.api("t2").finish([other], 10)
    assert api.status(held) == "pending"
    turn_gate(fleet, "open", "tenant", "t1")
    api.finish([held], 10)
