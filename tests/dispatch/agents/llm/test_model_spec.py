"""What agents.toml may say of a model, and what is refused with the agent's name and the key's."""

from __future__ import annotations

import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dispatch.agents.llm.agent import ModelAgent
from dispatch.agents.llm.spec import HISTORY_BYTES, HISTORY_TURNS, TIMEOUT_S, ModelSpec, Prices
from dispatch.agents.registry import BadAgent, load_agents
from dispatch.spending import Budget
from tests.dispatch.agents.command.commands import SECRET
from tests.dispatch.agents.llm.models import KEY, TOOLS, declared, ground

URL = "http://127.0.0.1:9/v1"


def spec_of(place: Path, url: str | None = URL, **keys: Any) -> ModelSpec:
    fn = declared(place, url, **keys).fn
    assert isinstance(fn, ModelAgent)
    return fn.spec


def prepared(place: Path, url: str | None = URL, **keys: Any) -> None:
    prepare = declared(place, url, **keys).prepare
    assert prepare is not None
    prepare()


def refusal(place: Path, url: str | None = URL, *, at_start: bool = False, **keys: Any) -> str:
    """What every process says, or `at_start` what one says that runs the agent."""
    with pytest.raises(BadAgent) as refused:
        prepared(place, url, **keys) if at_start else declared(place, url, **keys)
    return refused.value.message.removeprefix("AGENTS_FILE: agents.tested.")


def test_what_is_not_said_has_its_default(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert (spec.model, spec.base_url, spec.instructions, spec.tools) == ("small", URL, "", ())
    assert (spec.history_turns, spec.history_bytes) == (HISTORY_TURNS, HISTORY_BYTES)
    assert (dict(spec.settings), spec.retries, spec.budget) == ({"timeout_s": TIMEOUT_S}, 1, Budget())


def test_every_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    spec = spec_of(
        tmp_path,
        instructions="Be brief.",
        tools=["add"],
        prices={"input": 0.15, "output": "0.6"},
        output_schema="schema.json",
        max_requests=1,
        max_tokens=2,
        session_max_tokens=3,
        retries=0,
        history_turns=0,
        history_bytes=4096,
        settings={"temperature": 1, "timeout_s": 5},
    )
    assert spec.prices == Prices(input=Decimal("0.15"), output=Decimal("0.6"))
    assert spec.budget == Budget(max_requests=1, max_tokens=2, session_max_tokens=3)
    assert (spec.tools, spec.tool_names) == ((f"{TOOLS}:add",), ("add",))
    assert (dict(spec.settings), dict(spec.output_schema or {})) == (
        {"temperature": 1, "timeout_s": 5},
        {"type": "object"},
    )


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"model": ""}, "model is not a text of 1 to 200 characters"),
        ({"model": 3}, "model is not a text"),
        ({"base_url": "ftp://x"}, "base_url is not an http:// or https:// address"),
        ({"base_url": "http://x:port"}, "base_url is not an http:// or https:// address"),
        ({"base_url": "http://x/v1?key=1"}, "base_url has a user, a query or a fragment"),
        ({"base_url": "http://me:sk@x/v1"}, "base_url has a user, a query or a fragment"),
        ({"api_key_env": "sk-123"}, "api_key_env is not the name of a variable"),
        ({"api_key_env": SECRET}, f"api_key_env names {SECRET}, which is a secret of this fleet"),
        ({"instructions": 1}, "instructions is not a text"),
        ({"instructions": "a", "instructions_file": "b"}, "instructions_file stands beside instructions"),
        ({"instructions_file": "none.md"}, "instructions_file names a file that cannot be read: no such file"),
        ({"tools": "add"}, "tools is not a list of texts"),
        ({"tools": ["x:"]}, "tools has 'x:', which is not written as package.module:function"),
        ({"tools": ["add", "other:add"]}, "tools has two functions of the name add"),
        ({"settings": 1}, "settings is not a table"),
        ({"settings": {"heat": 1}}, "settings.heat is not known; known are temperature"),
        ({"settings": {"temperature": 3}}, "settings.temperature is not a number from 0 to 2"),
        ({"settings": {"max_tokens": True}}, "settings.max_tokens is not a number of tokens from 1"),
        ({"settings": {"timeout_s": 0}}, "settings.timeout_s is not a number of seconds above 0"),
        ({"retries": -1}, "retries is not an integer from 0 to 20"),
        ({"history_turns": 1.5}, "history_turns is not an integer from 0 to 1,000"),
        ({"history_bytes": 300_000}, "history_bytes is not an integer from 1,024 to 196,608"),
        ({"prices": {"input": 1}}, "prices is not a table of input and output"),
        ({"prices": {"input": 1, "output": "dear"}}, "prices.output is not a number from 0 to 1,000,000"),
        ({"max_requests": 0}, "max_requests is not an integer from 1 to"),
        ({"session_max_tokens": "many"}, "session_max_tokens is not an integer from 1 to"),
        ({"output_schema": "none.json"}, "output_schema names a file that cannot be read"),
        ({"output_schema": "agents.toml"}, "output_schema names a file that is not JSON"),
        ({"output_schema": "list.json"}, 'output_schema names a file that is not a JSON schema with "type": "object"'),
        ({"output_schema": "wrong.json"}, "output_schema names a file that is no JSON schema"),
        ({"argv": ["x"]}, "unknown key agents.tested.argv"),
    ],
)
def test_a_wrong_key_is_refused_in_every_process_with_its_name(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "wrong.json").write_text('{"type": "object", "properties": 3}')
    assert words in refusal(tmp_path, **keys)


def test_without_an_address_a_provider_is_named(tmp_path: Path) -> None:
    assert "provider:model" in refusal(tmp_path, None, model="small")
    assert spec_of(tmp_path, None, model="openai:gpt-5").base_url is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_package.module:fn", "which cannot be imported: ModuleNotFoundError"),
        (f"{TOOLS}:nothing", "which cannot be imported: AttributeError"),
        (f"{TOOLS}:NOT_A_FUNCTION", "which is not a function"),
        ("tests.dispatch.agents.llm.test_model_spec:takes_what_no_model_can_give", "which cannot be a tool"),
    ],
)
def test_a_tool_that_is_not_there_is_refused_where_the_agent_runs(tmp_path: Path, path: str, words: str) -> None:
    assert f"tools has {path}, {words}" in refusal(tmp_path, at_start=True, tools=[path])


def takes_what_no_model_can_give(lock: threading.Lock) -> None:
    """Hold a lock."""


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nobody:small", "model cannot be used: "),
        ("anthropic:claude-sonnet-4-5", "model cannot be used: Please install"),
    ],
)
def test_a_provider_that_is_not_known_or_not_installed_is_refused(tmp_path: Path, model: str, words: str) -> None:
    assert words in refusal(tmp_path, None, at_start=True, model=model)


def test_a_key_is_needed_where_one_is_named_and_comes_from_a_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "NO_KEY, and neither it nor NO_KEY_FILE is set" in refusal(tmp_path, at_start=True, api_key_env="NO_KEY")
    assert "OPENAI_API_KEY" in refusal(tmp_path, None, at_start=True, model="openai:gpt-5")
    prepared(tmp_path, None, model="openai:gpt-5", api_key_env="MODEL_KEY")

    def unreadable(name: str) -> str | None:
        raise ValueError("its _FILE cannot be read: no such file or directory")

    place = replace(ground(tmp_path), secret=unreadable)
    agent = load_agents([], tmp_path / "agents.toml", place).get("tested")
    assert agent is not None
    assert agent.prepare is not None
    with pytest.raises(BadAgent, match=r"api_key_env names MODEL_KEY, which cannot be used: its _FILE cannot be read"):
        agent.prepare()


def test_no_key_shows_in_what_describes_the_agent(tmp_path: Path) -> None:
    agent = declared(tmp_path, URL, api_key_env="MODEL_KEY")
    assert agent.prepare is not None
    agent.prepare()
    assert agent.description == "Asks the model small."
    assert KEY not in repr(agent)
    assert KEY not in str(vars(agent.fn))
