"""What has happened in the fleet that the browser looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.processes import until

HOSTILE = '"><img src=x onerror=alert(1)><div x-data x-init="alert(2)">{{7*7}}</div>'


@dataclass(frozen=True)
class Scene:
    """Ids of what the pages are about: sessions by name, jobs by id."""

    fleet: Fleet
    api: Api
    long_running: str
    failed: str
    asking: str
    told: str

    @classmethod
    def play(cls, fleet: Fleet) -> Self:
        """One worker with four slots; turns that ran, failed, ask, wait and run."""
        fleet.worker(2, "--capacity", 3, "--grace", 1)
        api, platform = fleet.api("t1"), fleet.platform()
        for turn in range(3):
            api.dispatch(
                "note", "index-rebuild", task=f"Rebuild the index, part {turn + 1}", metadata={"domain": "search"}
            )
        failed = api.dispatch("boom", "billing", task=HOSTILE, max_attempts=1, metadata={"domain": "money"})
        api.until(failed, "dead_letter", within=20)
        asking = api.dispatch("ask", "paint", task="Paint the shed")
        api.dispatch("note", "paint", task="Then the fence")
        api.until(asking, "suspended", within=20)
        missed = {"schema": {"required": ["what no echo has"]}}
        goal: dict[str, Any] = {"kind": "goal_loop", "objective": HOSTILE, "validation": missed, "max_iterations": 2}
        api.until(api.dispatch("echo", **goal, constraints={"note": HOSTILE * 20}), "failed", within=20)
        long_running = api.dispatch("wait", "runaway", s=600, task="Summarise the whole archive")
        api.dispatch("note", "runaway", task="Mail the summary")
        for name in ("nightly-1", "nightly-2"):
            api.dispatch("note", name, task="Nightly report", metadata={"domain": "reports"})
        api.until(long_running, "running", within=20)
        platform.request(
            "POST",
            "/api/fleet/limits/set",
            {"scope": "agent", "name": "wait", "max_running": 1, "rate_per_s": 0.5, "reason": "the vendor's quota"},
        )
        body = {"name": "report", "cron": "*/5 * * * *", "task": "Report", "agent_name": "boom", "enabled": True}
        api.request("POST", "/api/fleet/schedules", body)
        api.request("POST", "/api/fleet/schedules/report/run", {"reason": "to see one"})
        api.control("pause", "nightly-2")
        fleet.python(
            "from dispatch.webhooks.endpoints import endpoint_add\n"
            "endpoint_add(tenant='t1', url='https://ci.example.invalid/')\n"
        )
        told = api.dispatch("note", "told", callback_url="https://ci.example.invalid/hook")
        until(lambda: api.job(told).get("deliveries"), 30, "its callback is made")
        return cls(fleet, api, long_running, failed, asking, told)
