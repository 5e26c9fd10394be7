"""Traces: one for the whole way of a turn, over the processes that it passes; none unless they are asked for."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.collector import Collector
from tests.support.fleet import Fleet, Template

pytestmark = [pytest.mark.process, pytest.mark.store]

INLINE = """
from dispatch import services, wiring
from dispatch.access import Caller
from dispatch.specs import DispatchSpec
caller = Caller(tenant="t1", name="me", kind="command_line", scopes=frozenset({"dispatch"}))
body = {"task": "do it", "agent_name": "traced", "session_id": "inline"}
services.job_dispatch(caller=caller, spec=DispatchSpec.parse(body))
wiring.tracer().close()
"""
NOTHING_LOADED = """
import sys
from dispatch import wiring
wiring.tracer().close()
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


def sent_with(api: Api, traceparent: str, **fields: object) -> str:
    body = {"action": "dispatch", "task": "a secret task", "agent_name": "traced", **fields}
    answer = api.request("POST", "/api/graph/jobs", body, headers={"traceparent": traceparent})
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def test_one_trace_leads_from_the_request_through_the_run_to_the_settlement_and_to_children(
    template: Template, tmp_path: Path
) -> None:
    trace_id, caller_id = secrets.token_hex(16), secrets.token_hex(8)
    with Collector() as collector:
        told: dict[str, Any] = {
            "AGENT_TRACING": 1,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": 100,
        }
        with Fleet(tmp_path / "fleet", template, **told) as fleet:
            api = fleet.api("t1")
            worker = fleet.worker(1, "--capacity", 2, env={"OTEL_BSP_SCHEDULE_DELAY": 60_000})
            job = sent_with(api, f"00-{trace_id}-{caller_id}-01")
            unsampled = sent_with(api, f"00-{secrets.token_hex(16)}-{caller_id}-00")
            wrong = sent_with(api, f"00-{'0' * 32}-{caller_id}-01", agent_name="atraced")
            failed = api.dispatch("boom", max_attempts=1)
            ended = api.finish([job, unsampled, wrong, failed], 20)
            child = ended[job]["result"]["child"]
            api.finish([child, ended[wrong]["result"]["child"]], 20)
            worker.signal(15)  # what it has not yet sent goes out with its end
            assert worker.wait(15) == 0, worker.tail()

            (dispatch,) = collector.until_told("dispatch", job_id=job)
            (run,) = collector.until_told("run", job_id=job)
            (settle,) = collector.until_told("settle", job_id=job)
            assert (dispatch.trace_id, dispatch.parent_id) == (trace_id, caller_id)
            assert (run.trace_id, run.parent_id) == (trace_id, dispatch.span_id)
            assert (settle.trace_id, settle.parent_id) == (trace_id, run.span_id)
            assert dispatch.begin_ns <= run.begin_ns <= run.end_ns <= settle.end_ns
            assert (settle.facts["status"], settle.facts["verb"]) == ("succeeded", "succeeded")
            assert run.facts["agent_name"] == "traced"
            assert ended[job]["result"]["traceparent"] == run.traceparent, "what the agent is told"
            assert ended[job]["result"]["current"] == run.span_id, "what its libraries find"

            (of_child,) = collector.until_told("dispatch", job_id=child)
            assert (of_child.trace_id, of_child.parent_id) == (trace_id, run.span_id)
            assert collector.until_told("run", job_id=child)[0].parent_id == of_child.span_id

            (own,) = collector.until_told("dispatch", job_id=wrong)
            assert own.parent_id == "", "a context that breaks the rules is no one's"
            (asynchronous,) = collector.until_told("run", job_id=wrong)
            assert ended[wrong]["result"]["current"] == asynchronous.span_id
            (of_async,) = collector.until_told("dispatch", job_id=ended[wrong]["result"]["child"])
            assert (of_async.trace_id, of_async.parent_id) == (own.trace_id, asynchronous.span_id)
            (broken,) = collector.until_told("run", job_id=failed)
            assert (broken.failed, broken.facts["error.type"]) == (True, "ValueError")
            assert not collector.spans("run", job_id=unsampled), "the caller said that nobody keeps this trace"
            assert "-00" in ended[unsampled]["result"]["traceparent"]

            fleet.python(INLINE, env={"AGENT_DISPATCH_BACKEND": "inline"})
            (inline,) = collector.until_told("run", session_id="inline")
            assert collector.until_told("settle", session_id="inline")[0].parent_id == inline.span_id
            assert {span.service for span in (dispatch, run, inline)} == {"fleetsite"}
            for hidden in (b"a secret task", b"boom\x00", b'"boom"'):
                assert hidden not in collector.raw

            away = fleet.worker(1, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
            assert api.finish([api.dispatch("traced")], 20), "a collector that is away costs no turn"
            fleet.stop([away])


def test_a_fleet_without_tracing_loads_nothing_and_writes_nothing(fleet: Fleet, api: Api) -> None:
    job = sent_with(api, f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01", agent_name="note")
    assert fleet.state_sql("SELECT traceparent FROM work_items WHERE job_id = ?", job) == [(None,)]
    fleet.python(NOTHING_LOADED, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
