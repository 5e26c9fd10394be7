"""Workers die and freeze, the broker goes away, messages are not what they should be: nothing is lost or doubled."""

from __future__ import annotations

import hashlib
import signal
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from dispatch.envelope import AgentTurnEnvelope
from tests.support.api import Api
from tests.support.fleet import TICK_S, TTL_S, Fleet, new_session
from tests.support.journal import assert_sessions_in_order
from tests.support.kafka import KafkaBroker
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.kafka]
TAKEN_WITHIN_S = TTL_S + 2 * TICK_S + 4  # and the group's rebalance


def put(broker: KafkaBroker, *values: bytes) -> None:
    """Messages of somebody else."""
    producer = Producer({"bootstrap.servers": broker.servers})
    with closing(producer) as sender:
        for value in values:
            sender.produce("agent_turns", key=b"somebody", value=value)
        assert sender.flush(10) == 0


def envelope(job_id: str, session: str, *, tenant: str = "t1") -> bytes:
    return AgentTurnEnvelope(
        job_id=job_id,
        session_id=session,
        kind="orchestrator_task",
        payload_ref=job_id,
        agent_name="wait",
        tenant=tenant,
        enqueued_at=time.time(),
    ).encode()


@pytest.mark.store
def test_another_worker_takes_the_turn_of_a_killed_one_and_the_order_holds(fleet: Fleet, api: Api) -> None:
    workers = {worker.pid: worker for worker in (fleet.worker(1), fleet.worker(1))}
    session = new_session()
    turns = [api.dispatch("wait", session, s=3), *(api.dispatch("note", session) for _ in range(2))]
    first = workers.pop(fleet.until_begun(turns[0]).pid)
    first.kill()
    killed = time.monotonic()
    run = fleet.until_begun(turns[0], runs=2, within=TAKEN_WITHIN_S)
    assert run.pid in workers
    assert run.begin - killed <= TAKEN_WITHIN_S
    jobs = api.finish(turns, 30)
    assert_sessions_in_order(fleet.journal, jobs.values())
    assert [jobs[job]["attempt"] for job in turns] == [2, 1, 1]


def test_a_frozen_worker_writes_and_acks_nothing_when_it_wakes(fleet: Fleet, api: Api) -> None:
    first = fleet.worker(1)
    session = new_session()
    turns = [api.dispatch("talk", session, s=8), *(api.dispatch("note", session) for _ in range(5))]
    fleet.until_begun(turns[0])
    fleet.freeze(first)
    second = fleet.worker(1)
    jobs = api.finish(turns, 60)
    assert jobs[turns[0]]["result"]["pid"] == second.pid
    assert jobs[turns[0]]["attempt"] == 2
    assert_sessions_in_order(fleet.journal, jobs.values())  # awake, the first one's run soon ends, and says so
    fleet.thaw(first)
    first.wait_for_text("lease", 20)
    again = api.finish(turns, 10)
    assert again[turns[0]]["result"] == jobs[turns[0]]["result"], "the woken worker's result is refused"
    after = api.dispatch("note")
    api.finish([after], 20)


def test_a_second_envelope_of_a_running_job_starts_nothing_and_a_death_loses_nothing(
    fleet: Fleet, api: Api, broker: KafkaBroker
) -> None:
    workers = {worker.pid: worker for worker in (fleet.worker(1), fleet.worker(1))}
    session = new_session()
    job = api.dispatch("wait", session, s=8)
    first = workers.pop(fleet.until_begun(job).pid)
    put(broker, *[envelope(job, session)] * 6)
    probe = [api.dispatch("note") for _ in range(4)]  # behind the doubled ones
    api.finish(probe, 20)
    assert len(fleet.journal.runs(job)) == 1
    first.kill()
    done = api.finish([job], TAKEN_WITHIN_S + 10)[job]
    assert (done["status"], done["attempt"], done["result"]["pid"]) == ("succeeded", 2, *workers)
    assert fleet.epochs(job) == [1, 2]


def test_what_is_no_envelope_of_a_job_is_kept_and_the_partition_goes_on(
    fleet: Fleet, api: Api, broker: KafkaBroker
) -> None:
    session = new_session()
    job = api.dispatch("note", session)
    values = (envelope(job, session, tenant="t2"), envelope("orch-" + "7" * 32, "s"), b"\xff\x00 no envelope")
    put(broker, *values)
    fleet.worker(1)
    api.finish([job, *[api.dispatch("note") for _ in range(3)]], 20)
    # of these three: the topic may still hold turns of a store that an earlier test had
    digests = [hashlib.sha256(value).hexdigest() for value in values]
    query = "SELECT reason, transport FROM dead_envelopes WHERE digest IN (?, ?, ?) ORDER BY reason"
    until(lambda: len(fleet.state_sql(query, *digests)) >= 3, 10, "the dead envelopes are kept")
    expected = [("tenant_mismatch", "kafka"), ("unknown", "kafka"), ("unreadable", "kafka")]
    assert fleet.state_sql(query, *digests) == expected
    assert len(fleet.journal.runs(job)) == 1


@pytest.mark.store
def test_without_a_broker_a_dispatch_is_503_in_time_and_leaves_nothing(
    fleet: Fleet, api: Api, broker: KafkaBroker
) -> None:
    worker = fleet.worker(1)
    ended = api.dispatch("boom", max_attempts=1)
    api.until(ended, "dead_letter", within=20)
    running, session = api.dispatch("wait", s=3), new_session()
    fleet.until_begun(running)
    jobs, callback = len(api.jobs()), "https://ci.example.org/"
    added = fleet.spawn("webhooks", "manage.py", "webhooks", "add", callback, "--tenant", "t1")
    assert added.wait(20) == 0
    broker.stop(signal.SIGKILL)
    try:
        for _ in range(3):
            began = time.monotonic()
            answer = api.call("dispatch", task="x", agent_name="note", session_id=session, callback_url=callback)
            assert (answer.status, answer.json()["code"]) == (503, "queue_unavailable")
            assert time.monotonic() - began < 8
        retry = api.call("retry", job_id=ended)
        assert (retry.status, retry.json()["code"]) == (503, "queue_unavailable")
        assert api.status(ended) == "dead_letter"
        assert len(api.jobs()) == jobs
        assert fleet.state_sql("SELECT 1 FROM sessions WHERE session_id = ?", session) == []
        assert fleet.state_sql("SELECT 1 FROM webhook_watches") == []
        until(lambda: fleet.anyone().request("GET", "/readyz").status == 503, 10, "it is not ready")
        assert "agent_utilities_dispatch_queue_depth" not in fleet.platform().request("GET", "/metrics").text
        assert api.finish([running], 15)[running]["status"] == "succeeded", "what runs goes on without a broker"
        worker.wait_for_text("kafka broker unreachable", 20)
    finally:
        broker.start()
    until(lambda: api.call("dispatch", task="x", agent_name="note").status == 202, 30, "it admits again")
    until(lambda: not api.jobs("pending"), 30, "the turns run")
    assert worker.alive
    worker.wait_for_text("kafka broker reached again", 20)
    said = [line for line in worker.text().splitlines() if "kafka broker" in line or line.startswith("%")]
    assert len(said) == 2, f"a lost broker is said once, and once that it is back: {said}"


def test_a_broker_that_answers_nothing_is_503_in_time_and_goes_on_when_it_wakes(
    fleet: Fleet, api: Api, broker: KafkaBroker
) -> None:
    worker, session = fleet.worker(1), new_session()  # with one slot, which is taken: what is refused finds none
    turns = [api.dispatch("wait", session, s=15), *(api.dispatch("note", session) for _ in range(3))]
    fleet.until_begun(turns[0])
    jobs = len(api.jobs())
    broker.freeze()
    try:
        for _ in range(3):
            began = time.monotonic()
            assert api.call("dispatch", task="x", agent_name="note").status == 503
            assert time.monotonic() - began < 10
        assert fleet.anyone().request("GET", "/readyz").status == 503
        assert len(api.jobs()) == jobs, "what was refused is withdrawn"
    finally:
        broker.thaw()
    until(lambda: api.call("dispatch", task="x", agent_name="note").status == 202, 30, "it admits again")
    ended = api.finish(turns, 40)
    assert [(job["status"], job["attempt"]) for job in ended.values()] == [("succeeded", 1)] * 4
    assert_sessions_in_order(fleet.journal, ended.values())
    until(lambda: not api.jobs("pending"), 30, "the turns run")
    assert worker.alive


@pytest.mark.slow
def test_claims_resume_after_each_restart_of_the_broker(fleet: Fleet, api: Api, broker: KafkaBroker) -> None:
    worker = fleet.worker(2)
    done: list[str] = []
    for number in range(5):
        broker.restart(signal.SIGKILL if number % 2 else signal.SIGTERM)

        def admitted() -> str | None:
            answer = api.call("dispatch", task="x", agent_name="note")
            return answer.json()["job_id"] if answer.status == 202 else None

        job = until(admitted, 30, "it admits again", every=0.2)
        assert job is not None
        api.finish([job], 30)
        done.append(job)
    assert len(fleet.journal.runs(*done)) == 5
    assert worker.text().count("kafka broker unreachable") <= 5, "each loss is said once at most"


def test_killing_the_web_process_leaves_no_turn_without_an_envelope(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(2, "--capacity", 4)
    handles: list[str] = []
    for _ in range(3):
        handles += [api.dispatch("note") for _ in range(10)]
        fleet.kill_web()
        fleet.start_web()
    jobs = api.finish(handles, 40)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    until(lambda: not api.jobs("pending"), 4 * TICK_S + 10, "what was admitted without an answer runs too")
    assert worker.alive


def test_sigterm_hands_back_and_another_member_starts_it(fleet: Fleet, api: Api) -> None:
    workers = {worker.pid: worker for worker in (fleet.worker(1, "--grace", 1), fleet.worker(1, "--grace", 1))}
    job = api.dispatch("wait", s=4)
    first = workers.pop(fleet.until_begun(job).pid)
    first.signal(signal.SIGTERM)
    assert first.wait(15) == 0
    run = fleet.until_begun(job, runs=2, within=12)
    assert run.pid in workers
    assert api.finish([job], 20)[job]["attempt"] == 1


def test_a_broker_that_cannot_be_reached_at_start_ends_the_worker_with_exit_2(fleet: Fleet) -> None:
    worker = fleet.launch(1, env={"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "KAFKA_SASL_PASSWORD": "hidden-word"})
    assert worker.wait(40) == 2
    assert "KAFKA_BOOTSTRAP_SERVERS: no broker answered at 127.0.0.1:1" in worker.text()
    assert "hidden-word" not in worker.text()


def test_an_option_that_the_client_does_not_take_is_named_without_its_value(fleet: Fleet) -> None:
    worker = fleet.launch(1, env={"KAFKA_SASL_MECHANISME": "hidden-word"})
    assert worker.wait(40) == 2
    assert "KAFKA_SASL_MECHANISME" in worker.text()
    assert "hidden-word" not in worker.text()
