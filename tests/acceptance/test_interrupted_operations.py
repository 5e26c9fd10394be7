"""A web process that is killed in the middle of an operation leaves no operation that runs for ever."""

from __future__ import annotations

import json
import signal

import pytest

from tests.support.fleet import STAFF, Fleet
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]

CHOSEN, PART, REACHED = 30, 10, 2
_ACT = f"""
import signal
import django; django.setup()
from django.contrib.auth import get_user_model
from django.test import Client
from django.test.utils import setup_test_environment
from dispatch import services
from fleet.console import sessions
from sessions_app.models import Session

sessions.PART = {PART}
act, parts = services.sessions_control, []

def control(**more):
    answer = act(**more)
    parts.append(answer)
    if len(parts) == {REACHED}:
        print("reached", flush=True)
        signal.pause()  # until it is killed
    return answer

services.sessions_control = control
setup_test_environment()  # pages tell their context
client = Client(SERVER_NAME="127.0.0.1")
client.force_login(get_user_model().objects.get(username={STAFF!r}))
chosen = [str(pk) for pk in Session.objects.order_by("pk").values_list("pk", flat=True)]
address = "/admin/sessions_app/session/"
asked = client.post(address, {{"action": "pause_sessions", "_selected_action": chosen}}).context["page"]
client.post(address, {{
    "action": "pause_sessions", "confirmed": "yes", "_selected_action": "0", "targets": asked.targets,
    "request_id": asked.request_id, "type_this": "", "typed": str(len(chosen)), "reason": "a drill",
}})
"""
_LOOK = """
import json
from fleet.models import BulkOperation
from sessions_app.models import Session
operation = BulkOperation.objects.get()
paused = sorted(Session.objects.filter(desired="pause").values_list("pk", flat=True))
print(json.dumps([operation.status, operation.counts, sorted(pk for pk, _, _ in operation.results), paused]))
"""
_AGE = """
from datetime import timedelta
from django.db.models import F
from fleet.models import BulkOperation
BulkOperation.objects.update(created_at=F("created_at") - timedelta(minutes=2))
"""
_PAGE = f"""
from django.contrib.auth import get_user_model
from django.test import Client
from fleet.models import BulkOperation
client = Client(SERVER_NAME="127.0.0.1")
client.force_login(get_user_model().objects.get(username={STAFF!r}))
page = client.get(f"/admin/fleet/bulkoperation/{{BulkOperation.objects.get().pk}}/change/").content.decode()
print("No outcome is known of {CHOSEN - PART * REACHED} of {CHOSEN}" in page)
"""


def look(fleet: Fleet) -> tuple[str, dict[str, int], list[int], list[int]]:
    status, counts, told, paused = json.loads(fleet.python(_LOOK).splitlines()[-1])
    return status, counts, told, paused


@pytest.mark.timeout(120)
def test_an_operation_whose_process_is_killed_ends_as_interrupted_with_the_outcomes_so_far(fleet: Fleet) -> None:
    for n in range(CHOSEN):
        fleet.api("t1").dispatch("note", f"bulk-{n}", run_at="2999-01-01T00:00:00Z")
    acting = fleet.spawn("acting", "-c", _ACT)
    until(lambda: "reached" in acting.tail() or not acting.alive, 40, "it has acted on some")
    assert acting.alive, acting.tail()
    acting.signal(signal.SIGKILL)
    acting.wait(10)
    status, _, told, paused = look(fleet)
    assert (status, told, len(paused)) == ("running", [], PART * REACHED)
    fleet.worker(1)
    fleet.python(_AGE)
    until(lambda: look(fleet)[0] == "interrupted", 40, "a worker's tick has ended it")
    status, counts, told, paused = look(fleet)
    assert counts == {"applied": PART * REACHED}
    assert told == paused, "exactly those that it acted on"
    assert fleet.python(_PAGE).splitlines()[-1] == "True"
