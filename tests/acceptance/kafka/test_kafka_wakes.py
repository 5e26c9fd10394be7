"""What makes a turn claimable announces it: nobody has to look into the rows, and no tick has to send it once more."""

from __future__ import annotations

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, new_session
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.kafka, pytest.mark.store]
# its first ticks are at its start; later ones, and its looks into the rows, come when the test is over
SLOW_TICKS = {"AGENT_TICK_S": 60}


def test_schedules_retries_resumptions_and_replies_publish_their_turns(fleet: Fleet, api: Api) -> None:
    schedule = {"name": "every-second", "cron": "* * * * * *", "task": "tick", "agent_name": "note", "catch_up": "once"}
    assert api.request("POST", "/api/fleet/schedules", schedule).status == 201
    worker = fleet.worker(1, "--capacity", 4, env=SLOW_TICKS)
    worker.wait_for_text("kafka partitions assigned", 30)
    until(lambda: [job for job in api.jobs("succeeded") if job["metadata"].get("schedule")], 20, "its turn runs")
    by_hand = api.request("POST", "/api/fleet/schedules/every-second/run", {})
    assert by_hand.status == 202, by_hand.text
    api.until(by_hand.json()["job_id"], "succeeded", within=20)

    failing = api.dispatch("boom", max_attempts=1, payload={"times": 1})
    api.until(failing, "dead_letter", within=20)
    assert api.call("retry", job_id=failing).status == 202
    api.until(failing, "succeeded", within=20)

    session = new_session()
    api.finish([api.dispatch("note", session)], 20)
    assert api.control("pause", session) == {session: "applied"}
    held = api.dispatch("note", session)
    api.finish([api.dispatch("note", other) for other in (new_session(), new_session())], 20)
    assert api.status(held) == "pending"
    api.control("resume", session)
    api.until(held, "succeeded", within=20)

    asking = api.dispatch("ask", session)
    api.until(asking, "suspended", within=20)
    assert api.request("POST", f"/api/sessions/{session}/reply", {"text": "red"}).status == 200
    api.until(asking, "succeeded", within=20)
