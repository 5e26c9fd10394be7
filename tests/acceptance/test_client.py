"""The Python client against a real web process and worker: a server that dies, answers that are lost, cut streams."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dispatch.client import (
    AsyncClient,
    Client,
    ConnectionLost,
    IdempotencyConflict,
    Invalid,
    JobFailed,
    NoQuestion,
    NotFound,
    NotRetryable,
    Unauthenticated,
)
from tests.support.fleet import Fleet, new_session
from tests.support.front import Front
from tests.support.processes import Proc, free_port, until
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.store, pytest.mark.process]


def client_at(fleet: Fleet, port: int | None = None, **more: Any) -> Client:
    return Client(f"http://127.0.0.1:{port or fleet.port}", fleet._keys["t1"], **more)


def test_a_job_from_its_dispatch_to_its_result(fleet: Fleet, standing_worker: Proc) -> None:
    session = new_session()
    with client_at(fleet) as client:
        job = client.dispatch("do it", agent_name="note", session_id=session, metadata={"domain": "north"})
        assert job.session_id == session
        assert job.wait(20)["status"] == "succeeded"
        assert job.result()["n"] == 1
        assert job.status()["status"] == "succeeded"
        assert [event["event"] for event in job.events()][-1] == "succeeded"
        assert job.iterations()["iterations"] == [], "it is no goal"
        assert job.explain()["reason"] == "terminal"
        assert job.read()["agent_name"] == "note"
        assert [one["job_id"] for one in client.jobs(session_id=session)["jobs"]] == [job.job_id]
        assert job.cancel()["cancel"] == "too_late"
        assert client.session(session)["turns"] == 1
        assert session in [one["session_id"] for one in client.sessions(domain="north")["sessions"]]
        assert client.health()["evidence"]["schema_version"] == "fleet.health.v1"
        assert client.topology(limit=1)["page"]["limit"] == 1
        with pytest.raises(NotRetryable):
            job.retry()


def test_refusals_are_raised_as_what_they_are(fleet: Fleet) -> None:
    with client_at(fleet) as client:
        with pytest.raises(Invalid) as caught:
            client.dispatch("", agent_name="note")
        assert set(caught.value.fields) == {"task"}
        with pytest.raises(NotFound):
            client.job("orch-" + "0" * 32).status()
        with pytest.raises(NotFound):
            next(iter(client.job("orch-" + "0" * 32).stream()))
        client.dispatch("one", agent_name="note", idempotency_key="k1")
        with pytest.raises(IdempotencyConflict) as conflict:
            client.dispatch("two", agent_name="note", idempotency_key="k1")
        assert set(conflict.value.fields) == {"task"}
        good, bad = client.dispatch_many([{"task": "a", "agent_name": "note"}, {"task": ""}])
        assert isinstance(bad, Invalid)
        assert not isinstance(good, Exception)
    with Client(f"http://127.0.0.1:{fleet.port}", "nobody") as stranger, pytest.raises(Unauthenticated):
        stranger.sessions()


def test_a_failed_job_is_retried_and_a_question_answered(fleet: Fleet, standing_worker: Proc) -> None:
    with client_at(fleet) as client:
        job = client.dispatch("do it", agent_name="boom", payload={"times": 1}, max_attempts=1)
        with pytest.raises(JobFailed, match="boom") as caught:
            job.result(20)
        assert (caught.value.status, caught.value.code) == ("dead_letter", "agent_error")
        assert job.retry().result(20)["n"] == 1
        session = new_session()
        asking = client.dispatch("ask me", agent_name="ask", session_id=session)
        until(lambda: asking.status()["status"] == "suspended", 20, "it asks")
        question = client.session(session)["needs_input"]
        assert question is not None
        assert question["question"] == "which colour?"
        assert client.reply(session, "red")["job_id"] == asking.job_id
        assert asking.result(20)["reply"] == "red"
        with pytest.raises(NoQuestion):
            client.reply(session, "blue")


def test_answers_that_are_refused_or_lost_never_double_a_dispatch(fleet: Fleet) -> None:
    session = new_session()
    with Front(fleet.port, "refuse", "lose", "lose") as front, client_at(fleet, front.port) as client:
        job = client.dispatch("do it", agent_name="note", session_id=session)
        assert job.replayed, "the second time it had been admitted, and its answer lost"
        assert len(front.seen) == 4
        assert len({body["idempotency_key"] for body in front.seen}) == 1
    with Front(fleet.port, "lose") as front, client_at(fleet, front.port) as client:
        many = client.dispatch_many([{"task": str(n), "agent_name": "note", "session_id": session} for n in range(20)])
        assert [getattr(one, "replayed", None) for one in many] == [True] * 20
    with client_at(fleet) as client:
        assert len(client.jobs(session_id=session)["jobs"]) == 21


def test_a_server_that_is_killed_is_waited_for(fleet: Fleet, standing_worker: Proc) -> None:
    with client_at(fleet, retry_for_s=90) as client:
        before = client.dispatch("do it", agent_name="wait", payload={"s": 3})
        waited: list[Any] = []
        waiting = threading.Thread(target=lambda: waited.append(before.result(60)))
        waiting.start()
        fleet.kill_web()
        starting = threading.Thread(target=fleet.start_web)
        starting.start()
        after = client.dispatch("do it", agent_name="note")
        assert after.result(60)["n"] == 1
        waiting.join(60)
        starting.join(60)
        assert waited
        assert waited[0]["n"] == 1


def test_a_server_that_stays_away_is_said_to(fleet: Fleet) -> None:
    with client_at(fleet, free_port(), retry_for_s=1) as client, pytest.raises(ConnectionLost):
        client.dispatch("do it", agent_name="note")


def test_a_stream_that_is_cut_goes_on_where_it_was(fleet: Fleet, standing_worker: Proc) -> None:
    with Proxy(fleet.port) as proxy, client_at(fleet, proxy.port) as client:
        job = client.dispatch("talk", agent_name="talk", payload={"s": 4})
        ids, statuses, cuts = [], [], 0
        for event in job.stream():
            if event.event == "status":
                statuses.append(event.data["status"])
                continue
            ids.append(event.id)
            if len(ids) % 3 == 0 and cuts < 3:
                cuts += 1
                proxy.cut()
        assert cuts == 3
        assert statuses[-1] == "succeeded"
        assert len(statuses) == len(set(statuses)), "each status is told once"
    stored = fleet.state_sql(
        "SELECT c.id FROM output_chunks c JOIN work_items i ON i.id = c.work_item_id WHERE i.job_id = ? ORDER BY c.id",
        job.job_id,
    )
    assert ids == [number for (number,) in stored], "nothing is missing and nothing is told twice"


def test_the_asynchronous_client_does_the_same(fleet: Fleet, standing_worker: Proc) -> None:
    async def live() -> None:
        async with AsyncClient(f"http://127.0.0.1:{proxy.port}", fleet._keys["t1"]) as client:
            jobs = await asyncio.gather(*(client.dispatch("do it", agent_name="note") for _ in range(10)))
            results = await asyncio.gather(*(job.result(30) for job in jobs))
            assert [result["n"] for result in results] == [1] * 10
            talking = await client.dispatch("talk", agent_name="talk", payload={"s": 2})
            ids, last = [], ""
            async for event in talking.stream():
                if event.event == "text":
                    ids.append(event.id)
                    if len(ids) == 2:
                        proxy.cut()
                else:
                    last = event.data["status"]
            assert last == "succeeded"
            assert len(ids) == len(set(ids)) > 4
            assert (await talking.events())[-1]["event"] == "succeeded"
            with pytest.raises(NotFound):
                await client.job("orch-" + "0" * 32).status()
            held = await client.dispatch("hold", agent_name="hold", payload={"s": 60})
            async for _ in held.stream():
                break
            assert (await held.cancel("enough"))["cancel"] in ("done", "requested")
            with pytest.raises(JobFailed) as caught:
                await held.result(30)
            assert caught.value.status == "cancelled"

    with Proxy(fleet.port) as proxy:
        asyncio.run(live())


def test_a_coalesced_dispatch_whose_answer_was_lost_is_found_again(fleet: Fleet) -> None:
    session = new_session()
    with client_at(fleet) as client:
        first = client.dispatch("one", agent_name="note", session_id=session, run_at="2099-01-01T00:00:00Z")
        again: Any = {"agent_name": "note", "session_id": session, "on_busy": "coalesce", "idempotency_key": session}
        second = client.dispatch("two", **again)
        assert (second.job_id, second.coalesced, second.replayed) == (first.job_id, True, False)
        third = client.dispatch("two", **again)  # as the client itself does
        assert (third.job_id, third.replayed) == (first.job_id, True)
        assert first.read()["task"] == "two"
