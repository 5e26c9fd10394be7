"""Callbacks of a real fleet to a real receiver: soon, signed, and never lost, whoever dies in between."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator

import pytest

from dispatch.webhooks.signing import signature
from tests.support.api import Api
from tests.support.fleet import Fleet, Template, new_session
from tests.support.processes import Proc, until
from tests.support.receiver import HANG, Receiver

pytestmark = [pytest.mark.store, pytest.mark.process]

TIMEOUT_S = 2


@pytest.fixture(scope="module")
def installation(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet that may call this machine."""
    settings = {"AGENT_WEBHOOK_ALLOW_PRIVATE": 1, "AGENT_WEBHOOK_TIMEOUT_S": TIMEOUT_S, "AGENT_WEBHOOK_TRIES": 3}
    with Fleet(tmp_path_factory.mktemp("webhooks") / "f", template, **settings) as fleet:
        yield fleet


def add_endpoint(fleet: Fleet, url: str) -> str:
    """Answers its secret."""
    added = fleet.spawn("webhooks", "manage.py", "webhooks", "add", url, "--tenant", "t1")
    assert added.wait(30) == 0, added.text()
    return added.text().splitlines()[-1]


def deliveries(api: Api, job: str) -> list[tuple[str, str, int]]:
    return [(one["event"], one["state"], one["tries"]) for one in api.job(job)["deliveries"]]


def test_the_end_of_a_job_is_told_soon_and_can_be_verified(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    with Receiver() as receiver:
        secret = add_endpoint(fleet, receiver.url)
        job = api.dispatch("note", callback_url=f"{receiver.url}/done")
        api.until(job, "succeeded", within=20)
        ended = time.monotonic()
        (call,) = receiver.wait_for(1)
        assert time.monotonic() - ended < 5, "an idle fleet tells at its next look"
        until(lambda: deliveries(api, job) == [("job.succeeded", "delivered", 1)], 10, "it is marked")
    at = int(call.headers["webhook-timestamp"])
    signed = signature(delivery_id=call.id, at=at, body=call.raw, secret=secret)
    assert call.headers["webhook-signature"] == signed
    told = api.job(job)
    assert call.path == "/hooks/done"
    assert call.body["type"] == "job.succeeded"
    assert call.body["timestamp"] == told["events"][-1]["at"]
    state = api.ok("status", job_id=job)
    assert call.body["data"] == {"job_id": job, "session_id": told["session_id"], **state}
    logs = [*fleet.logs.glob("*-web.log"), *fleet.logs.glob("*-worker.log")]
    assert len(logs) >= 2
    assert not [log for log in logs if secret.removeprefix("whsec_") in log.read_text()]


def test_a_question_and_the_end_after_it_are_told_one_after_the_other(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    session = new_session()
    with Receiver() as receiver:
        add_endpoint(fleet, receiver.url)
        job = api.dispatch("ask", session, callback_url=receiver.url)
        (asked,) = receiver.wait_for(1)
        assert (asked.body["type"], asked.body["data"]["status"]) == ("job.suspended", "suspended")
        assert api.request("POST", f"/api/sessions/{session}/reply", {"text": "red"}).status == 200
        calls = receiver.wait_for(2)
    assert [call.body["type"] for call in calls] == ["job.suspended", "job.succeeded"]
    assert len({call.id for call in calls}) == 2
    assert {call.body["data"]["job_id"] for call in calls} == {job}


def test_a_refused_delivery_comes_again_under_its_id_and_a_dead_one_when_asked_for(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    with Receiver(500, 500, 500) as receiver:
        add_endpoint(fleet, receiver.url)
        job = api.dispatch("note", callback_url=receiver.url)
        receiver.wait_for(2, within=30)
        receiver.wait_for(3, within=40)
        until(lambda: deliveries(api, job) == [("job.succeeded", "dead", 3)], 10, "its tries are used up")
        (dead,) = api.job(job)["deliveries"]
        assert (dead["last_status"], dead["next_at"]) == (500, None)
        stranger = fleet.api("t2").call("redeliver", job_id=job, delivery_id=dead["delivery_id"])
        assert stranger.status == 404
        assert api.call("redeliver", job_id=job, delivery_id="msg_none").status == 404
        again = api.call("redeliver", job_id=job, delivery_id=dead["delivery_id"])
        assert (again.status, again.json()["delivery"]["state"]) == (202, "pending")
        calls = receiver.wait_for(4)
        until(lambda: deliveries(api, job) == [("job.succeeded", "delivered", 1)], 10, "it is taken")
    assert len({call.id for call in calls}) == 1
    assert len({call.raw for call in calls}) == 1


def test_a_sender_that_is_killed_before_it_has_marked_leaves_it_to_be_sent_again(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    with Receiver(HANG) as receiver:
        add_endpoint(fleet, receiver.url)
        job = api.dispatch("note", callback_url=receiver.url)
        receiver.wait_for(1)
        worker.signal_group(signal.SIGKILL)
        worker.wait(10)
        fleet.worker(1)
        first, second = receiver.wait_for(2, within=40)
        until(lambda: deliveries(api, job)[0][1] == "delivered", 10, "it is taken")
    assert first.id == second.id
    assert first.raw == second.raw


def test_a_worker_that_dies_between_the_end_of_a_job_and_its_news_loses_none(fleet: Fleet, api: Api) -> None:
    quiet = fleet.worker(1, "--no-maintenance")
    with Receiver() as receiver:
        add_endpoint(fleet, receiver.url)
        job = api.dispatch("note", callback_url=receiver.url)
        api.until(job, "succeeded", within=20)
        assert deliveries(api, job) == [], "nobody has looked"
        quiet.signal_group(signal.SIGKILL)
        quiet.wait(10)
        fleet.worker(1)
        (call,) = receiver.wait_for(1, within=30)
    assert call.body["data"]["job_id"] == job


def test_an_endpoint_that_hangs_holds_up_neither_turns_nor_other_endpoints(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    with Receiver(*[HANG] * 50) as hanging, Receiver() as other:
        add_endpoint(fleet, hanging.url)
        add_endpoint(fleet, other.url)
        for _ in range(10):
            api.dispatch("note", callback_url=hanging.url)
        hanging.wait_for(2)
        job = api.dispatch("note", callback_url=other.url)
        other.wait_for(1, within=10)
        assert api.status(job) == "succeeded"


def test_the_commands_of_endpoints(fleet: Fleet, api: Api) -> None:
    def webhooks(*arguments: str) -> Proc:
        return fleet.spawn("webhooks", "manage.py", "webhooks", *arguments)

    url = "https://ci.example.org/hooks"
    secret = add_endpoint(fleet, url)
    listed = webhooks("list", "--tenant", "t1", "--json")
    assert listed.wait(30) == 0
    assert url in [one["url"] for one in json.loads(listed.text())["endpoints"]]
    assert secret not in listed.text()
    twice = webhooks("add", url, "--tenant", "t1")
    rotated = webhooks("rotate", url, "--tenant", "t1", "--keep-hours", "2")
    assert (twice.wait(30), rotated.wait(30)) == (2, 0)
    assert rotated.text().splitlines()[-1] != secret
    nameless, wrong = webhooks("add", url), webhooks("add", "https://me@x.org/", "--tenant", "t1")
    assert (nameless.wait(30), wrong.wait(30)) == (2, 2)
    removed, unknown = webhooks("remove", url, "--tenant", "t1"), webhooks("rotate", url, "--tenant", "t2")
    assert (removed.wait(30), unknown.wait(30)) == (0, 3)
    refused = api.call("dispatch", task="x", agent_name="note", callback_url=url)
    assert refused.status == 400
    assert "callback_url" in refused.json()["fields"]
