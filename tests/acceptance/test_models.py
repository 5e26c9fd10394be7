"""Models as agents: asked over HTTP by real workers that are told, killed and refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fleet import TTL_S, Fleet, Template, new_session
from tests.support.model_server import ModelServer, calls, refuses, says
from tests.support.processes import Proc

pytestmark = [pytest.mark.process, pytest.mark.store]

KEY = "sk-never-shown"
FILE = """
[agents.chat]
kind = "llm"
model = "small"
base_url = "{url}"
api_key_env = "CHAT_KEY"
instructions = "Be brief."
tools = ["tests.support.model_tools:remember"]
prices = {{input = 1, output = 2}}
max_requests = 5
backoff_base_s = 0
"""
ALONE = """
[agents.broken]
kind = "llm"
model = "small"
base_url = "http://127.0.0.1:9/v1"
"""


@pytest.fixture(scope="module")
def standing_server() -> Iterator[ModelServer]:
    with ModelServer() as one:
        yield one


@pytest.fixture
def server(standing_server: ModelServer) -> ModelServer:
    standing_server.clear()
    return standing_server


@pytest.fixture(scope="module")
def installation(
    template: Template, standing_server: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """A fleet whose processes all have the model."""
    place = tmp_path_factory.mktemp("models")
    file = place / "agents.toml"
    file.write_text(FILE.format(url=standing_server.url))
    (place / "key").write_text(f"{KEY}\n")
    with Fleet(place / "f", template, AGENTS_FILE=file, CHAT_KEY_FILE=place / "key") as fleet:
        yield fleet
        for log in fleet.logs.iterdir():
            assert KEY not in log.read_text(), log


def asks(api: Api, session: str, task: str) -> str:
    return api.dispatch("chat", session, task=task)


def said(server: ModelServer) -> list[str]:
    """What the last request had the user and the model say."""
    return [text for role, text in server.asked[-1].texts if role in ("user", "assistant")]


def state_of(api: Api, session: str) -> dict[str, Any]:
    return dict(api.get(f"/api/sessions/{session}")["state"])


def test_a_session_remembers_over_three_turns_and_what_they_cost_is_told(
    fleet: Fleet, api: Api, server: ModelServer
) -> None:
    fleet.worker(2, "--capacity", 4)
    session = new_session()
    server.script(says("Hello Ann."), calls("remember", fact="likes tea"), says("Noted."), says("Tea, ", "Ann."))
    turns = [asks(api, session, task) for task in ("I am Ann.", "I like tea.", "What shall I drink?")]
    jobs = api.finish(turns, 30)
    assert [jobs[turn]["result"] for turn in turns] == ["Hello Ann.", "Noted.", "Tea, Ann."]
    assert said(server) == ["I am Ann.", "Hello Ann.", "I like tea.", "Noted.", "What shall I drink?"]
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
    assert state_of(api, session)["facts"] == ["likes tea"]
    second = {
        "requests": 2,
        "input_tokens": 20,
        "output_tokens": 10,
        "tool_calls": 1,
        "cost": "0.00004",
        "unpriced_requests": 0,
    }
    assert jobs[turns[1]]["usage"] == second == api.ok("result", job_id=turns[1])["usage"]
    whole = api.get(f"/api/sessions/{session}")["usage"]
    assert (whole["requests"], whole["input_tokens"], whole["cost"]) == (4, 40, "0.00008")
    scraped = fleet.platform().request("GET", "/metrics").text
    for direction in ("input", "output"):
        assert f'agent_utilities_dispatch_model_tokens_total{{agent="chat",direction="{direction}"}}' in scraped
    streamed = fleet.state_sql(
        "SELECT c.data FROM output_chunks c JOIN work_items i ON i.id = c.work_item_id WHERE i.job_id = ?", turns[2]
    )
    assert "Tea" in str(streamed[0][0])


def test_a_model_works_on_a_goal_and_hears_why_its_first_answer_was_not_enough(
    fleet: Fleet, api: Api, server: ModelServer
) -> None:
    fleet.worker(1)
    session = new_session()
    server.script(says("blue"), says("green"))
    goal: dict[str, Any] = {"kind": "goal_loop", "validation": {"schema": {"const": "green"}}, "max_iterations": 3}
    job = api.dispatch("chat", session, task="Name a colour.", **goal)
    ended = api.finish([job], 30)[job]
    assert (ended["status"], ended["result"], ended["goal"]["iteration"]) == ("succeeded", "green", 2)
    assert ended["usage"]["requests"] == 2
    first, answer, second = said(server)
    assert first.startswith("Name a colour.\n\nThis is iteration 1 of at most 3.")
    assert answer == "blue"
    assert "The last iteration returned: blue" in second
    assert "It did not pass the validation: " in second


def test_a_worker_killed_in_mid_stream_leaves_one_committed_turn_and_the_right_history(
    fleet: Fleet, api: Api, server: ModelServer
) -> None:
    first = fleet.worker(1)
    session = new_session()
    server.script(says("One."), says("Tw", "o.", hold=threading.Event()), says("Two."), says("Three."))
    turns = [asks(api, session, task) for task in ("1?", "2?", "3?")]
    api.until(turns[0], "succeeded", within=30)
    server.until_asked(2)
    first.kill()
    server.until_left()
    assert len(state_of(api, session)["conversation"]) == 1
    fleet.worker(1)
    jobs = api.finish(turns, TTL_S + 30)
    assert [jobs[turn]["result"] for turn in turns] == ["One.", "Two.", "Three."]
    assert server.asked[1].texts == server.asked[2].texts, "the second run sees what the first saw"
    assert said(server) == ["1?", "One.", "2?", "Two.", "3?"]
    assert len(state_of(api, session)["conversation"]) == 3
    used = jobs[turns[1]]["usage"]
    assert (used["requests"], used["unpriced_requests"], used["cost"]) == (2, 1, "0.00002")
    runs = "SELECT count(*) FROM outcomes o JOIN work_items i ON i.id = o.work_item_id WHERE i.job_id = ?"
    assert fleet.state_sql(runs, turns[1]) == [(1,)]


def test_a_cancel_in_mid_stream_closes_the_connection_and_the_session_goes_on_without_the_turn(
    fleet: Fleet, api: Api, server: ModelServer
) -> None:
    fleet.worker(1)
    session = new_session()
    server.script(says("Once ", "upon", hold=threading.Event()), says("Fine."))
    told = asks(api, session, "A story!")
    server.until_asked()
    assert api.ok("cancel", job_id=told)["cancel"] == "requested"
    server.until_left()
    api.until(told, "cancelled", within=10)
    after = asks(api, session, "How are you?")
    assert api.finish([after], 20)[after]["result"] == "Fine."
    assert said(server) == ["How are you?"]
    assert api.job(told)["usage"]["requests"] == 1
    assert api.job(told)["stopped_at"] is not None


def test_a_turn_over_its_budget_fails_and_a_busy_provider_is_asked_again(
    fleet: Fleet, api: Api, server: ModelServer
) -> None:
    fleet.worker(1)
    server.script(*(calls("remember", fact="x") for _ in range(5)))
    over = asks(api, new_session(), "Go on.")
    job = api.finish([over], 30)[over]
    assert (job["status"], job["error"]["code"], job["attempt"]) == ("failed", "budget_exceeded", 1)
    assert "max_requests is 5" in job["error"]["message"]
    assert (job["usage"]["requests"], len(server.asked)) == (5, 5)
    server.clear()
    server.script(refuses(429, Retry_After="1"), refuses(503), says("At last."))
    busy = asks(api, new_session(), "Hello?")
    job = api.finish([busy], 40)[busy]
    assert (job["result"], job["attempt"], job["usage"]["requests"]) == ("At last.", 3, 1)


def refused(fleet: Fleet, place: Path, keys: str, **env: object) -> str:
    file = place / "agents.toml"
    file.write_text(ALONE + keys)
    worker: Proc = fleet.launch(1, "--agents", "broken", env={"AGENTS_FILE": file, **env})
    assert worker.wait(60) == 2, worker.tail()
    (sentence,) = worker.text().strip().splitlines()
    return sentence


def test_a_worker_without_the_package_the_tool_or_the_key_is_refused_with_one_sentence(
    fleet: Fleet, tmp_path: Path
) -> None:
    shadow = tmp_path / "shadow" / "pydantic_ai"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text('raise ModuleNotFoundError("none", name="pydantic_ai")')
    sentence = refused(fleet, tmp_path, "", PYTHONPATH=shadow.parent)
    assert "agents.broken.kind" in sentence
    assert "requirements-llm.txt" in sentence
    sentence = refused(fleet, tmp_path, 'tools = ["tests.support.model_tools:nothing"]')
    assert "agents.broken.tools has tests.support.model_tools:nothing" in sentence
    sentence = refused(fleet, tmp_path, 'api_key_env = "NO_SUCH_KEY"')
    assert sentence.endswith("agents.broken.api_key_env names NO_SUCH_KEY, and neither it nor NO_SUCH_KEY_FILE is set")
