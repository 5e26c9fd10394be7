"""A user's own tests: dispatch inside a transaction that is rolled back, and run what was dispatched there."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import TestCase

from dispatch import selectors, services, testing, wiring
from dispatch.access import Caller
from dispatch.agents import TurnContext
from dispatch.agents.command.agent import CommandAgent
from dispatch.agents.command.spec import Ground, read_spec
from dispatch.agents.llm.agent import ModelAgent
from dispatch.agents.llm.spec import ModelSpec
from dispatch.agents.registry import DEFAULT, RegisteredAgent, Registry
from dispatch.models import OutputChunk, WorkItem
from dispatch.specs import DispatchSpec
from tests.support.model_server import ModelServer, calls, says

CALLER = Caller(tenant="t1", name="a test", kind="system", scopes=frozenset({"read", "dispatch"}))


def dispatch(**body: object) -> str:
    spec = DispatchSpec.parse({"task": "do it", "agent_name": "echo", **body})
    return str(services.job_dispatch(caller=CALLER, spec=spec).handle["job_id"])


def status(job_id: str) -> str:
    return str(selectors.job_status(caller=CALLER, job_id=job_id)["status"])


@pytest.mark.store
class InATestCase(TestCase):
    def test_drain_runs_what_was_dispatched_in_order(self) -> None:
        turns = [dispatch(session_id="s-1") for _ in range(3)]
        child = dispatch(dependencies=turns[:1])
        assert testing.drain() == 4
        assert {status(job) for job in [*turns, child]} == {"succeeded"}
        results = [selectors.job_result(caller=CALLER, job_id=job)["result"] for job in turns]
        assert len({str(result) for result in results}) == 3
        assert testing.drain() == 0

    def test_the_worker_command_runs_it_too(self) -> None:
        jobs = [dispatch() for _ in range(3)]
        call_command("run_dispatch_worker", "--once")
        assert sorted(status(job) for job in jobs) == ["pending", "pending", "succeeded"]
        call_command("run_dispatch_worker", "--drain")
        assert {status(job) for job in jobs} == {"succeeded"}

    def test_a_model_and_its_tools_write_on_the_tests_own_connection(self) -> None:
        with ModelServer() as server:
            server.script(calls("remember", fact="it rains"), says("Noted."))
            spec = ModelSpec(model="small", base_url=server.url, tools=("tests.support.model_tools:remember",))
            ground = Ground(workdirs=Path("unused"), is_secret=lambda name: False)
            agents = Registry(parent=DEFAULT)
            agents.add(RegisteredAgent(name="model", fn=ModelAgent(spec, ground, "model"), is_async=True))
            with patch.object(wiring, "_registry", agents):
                job = dispatch(agent_name="model")
                assert testing.drain() == 1
        told = selectors.job_result(caller=CALLER, job_id=job)
        assert (told["result"], told["usage"]["requests"]) == ("Noted.", 2)
        texts = OutputChunk.objects.filter(kind="text").order_by("pk").values_list("data__text", flat=True)
        assert list(texts) == ["[it rains]", "Noted."]

    def test_async_agents_and_commands_write_on_the_tests_own_connection(self) -> None:
        async def talker(turn: TurnContext) -> str:
            await turn.aemit("hello")
            await turn.acheckpoint(1)
            turn.progress(1)
            return "said"

        agents = Registry(parent=DEFAULT)
        agents.add(RegisteredAgent(name="talker", fn=talker, is_async=True))
        with TemporaryDirectory() as place:
            ground = Ground(workdirs=Path(place), is_secret=lambda name: False)
            spec = read_spec({"argv": ["cat"]}, ground)
            agents.add(RegisteredAgent(name="cat", fn=CommandAgent(spec, ground, 1), is_async=True))
            with patch.object(wiring, "_registry", agents):
                jobs = [dispatch(agent_name=name) for name in ("talker", "cat")]
                assert testing.drain() == 2
        assert [selectors.job_result(caller=CALLER, job_id=job)["result"] for job in jobs] == ["said", "do it"]
        assert list(OutputChunk.objects.order_by("pk").values_list("data__text", flat=True)) == ["hello", None, "do it"]

    def test_nothing_of_the_test_before_is_left(self) -> None:
        assert WorkItem.objects.count() == 0
        assert testing.drain() == 0


class Undone(Exception):
    """Ends a transaction."""


@transaction.atomic
def dispatch_and_undo() -> None:
    dispatch()
    raise Undone


@pytest.mark.store
@pytest.mark.django_db(transaction=True)
def test_a_dispatch_whose_transaction_rolls_back_leaves_nothing_in_state_or_queue() -> None:
    kept = dispatch()
    depth = wiring.transport().depth()
    with pytest.raises(Undone):
        dispatch_and_undo()
    assert list(WorkItem.objects.values_list("job_id", flat=True)) == [kept]
    assert wiring.transport().depth() == depth
    with transaction.atomic():
        later = dispatch()
    assert wiring.transport().depth() == depth + 1
    assert testing.drain() == 2
    assert {status(kept), status(later)} == {"succeeded"}
    wiring.authority().repair()
    assert wiring.authority().astray(limit=100) == {}
