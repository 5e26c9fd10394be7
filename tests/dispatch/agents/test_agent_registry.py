"""Which agents a process can run."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dispatch.agents import TurnContext, agent
from dispatch.agents.registry import DEFAULT, BadAgent, RegisteredAgent, Registry, load_agents
from tests.dispatch.agents.turn_store import MemoryTurnStore, lease

MODULE = """
from dispatch.agents import agent

@agent("{name}", max_attempts=5, timeout_s=600)
def triage(turn):
    '''Sort the incoming.

    More words.
    '''
    return turn.task

async def waits(turn):
    return 1
"""


@pytest.fixture(autouse=True)
def own_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a default registry of its own, with echo alone."""
    echo = DEFAULT.get("echo")
    assert echo is not None
    monkeypatch.setattr(DEFAULT, "_agents", {"echo": echo})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An importable module that registers `triage`."""
    name = f"agents_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name="triage"))
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def toml(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "agents.toml"
        path.write_text(text)
        return path

    return write


def found(registry: Registry, name: str) -> RegisteredAgent:
    agent = registry.get(name)
    assert agent is not None
    return agent


def test_a_module_registers_its_agents_with_their_rules(module: str) -> None:
    registry = load_agents([module], None)
    triage = found(registry, "triage")
    assert registry.names() == ("echo", "triage")
    assert (triage.max_attempts, triage.timeout_s, triage.is_async) == (5, 600, False)
    assert (triage.stop_grace_s, triage.on_worker_lost, triage.kind) == (10.0, None, "python")
    assert triage.description == "Sort the incoming."
    assert triage.policy.max_attempts == 5
    assert registry.get("nobody") is None


def test_echo_is_always_there_and_says_that_it_is_a_demo() -> None:
    registry = load_agents([], None)
    echo = found(registry, "echo")
    assert (registry.names(), registry.default_name(), echo.kind) == (("echo",), "echo", "echo")
    assert echo.description.startswith("Demo agent")
    turn = TurnContext(lease(turn_number=9, state={"turns": 2}), MemoryTurnStore())
    assert echo.fn(turn) == {"echo": "do it", "turn": 9, "demo": True}
    assert turn.state == {"turns": 3}


def test_the_default_is_the_only_agent_else_echo_else_what_the_file_says(
    module: str, toml: Callable[[str], Path]
) -> None:
    assert load_agents([module], None).default_name() == "triage"
    agent("second")(lambda turn: None)
    assert load_agents([module], None).default_name() == "echo"
    assert load_agents([module], toml('default = "second"')).default_name() == "second"


def test_async_functions_and_callables_are_told_apart() -> None:
    class Later:
        async def __call__(self, turn: TurnContext) -> int:
            return 1

    class Now:
        def __call__(self, turn: TurnContext) -> int:
            return 1

    async def waits(turn: TurnContext, more: int) -> int:
        return more

    agents: dict[str, Callable[..., Any]] = {
        "later": Later(),
        "now": Now(),
        "part": functools.partial(waits, more=1),
        "plain": lambda turn: 1,
    }
    for name, fn in agents.items():
        agent(name)(fn)
    assert {name: found(DEFAULT, name).is_async for name in agents} == {
        "later": True,
        "now": False,
        "part": True,
        "plain": False,
    }
    with pytest.raises(BadAgent, match="registered twice"):
        agent("part")(functools.partial(lambda turn, more: more, more=1))


def test_the_same_function_may_be_registered_again_another_may_not(module: str) -> None:
    load_agents([module], None)
    del sys.modules[module]
    load_agents([module], None)
    with pytest.raises(BadAgent, match="triage is registered twice"):
        agent("triage")(lambda turn: None)
    with pytest.raises(BadAgent, match="echo is registered twice"):
        agent("echo")(lambda turn: None)


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("", {}, "agent name"),
        ("a b", {}, "agent name"),
        ("ok\n", {}, "agent name"),
        ("x" * 201, {}, "agent name"),
        ("ok", {"max_attempts": 0}, "max_attempts"),
        ("ok", {"max_attempts": True}, "max_attempts"),
        ("ok", {"max_attempts": 2.0}, "max_attempts"),
        ("ok", {"timeout_s": 0}, "timeout_s"),
        ("ok", {"timeout_s": float("nan")}, "timeout_s"),
        ("ok", {"stop_grace_s": -1}, "stop_grace_s"),
        ("ok", {"backoff_base_s": "5"}, "backoff_base_s"),
        ("ok", {"backoff_cap_s": float("inf")}, "backoff_cap_s"),
        ("ok", {"on_worker_lost": "ignore"}, "on_worker_lost"),
    ],
)
def test_a_bad_declaration_names_what_is_wrong(name: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(BadAgent, match=named):
        agent(name, **options)(lambda turn: None)


def test_a_generator_is_no_agent() -> None:
    def pieces(turn: TurnContext) -> Iterator[int]:
        yield 1

    with pytest.raises(BadAgent, match="generator"):
        agent("pieces")(pieces)


def test_a_module_that_cannot_be_imported_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_agents.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    for module, why in (("broken_agents", "ZeroDivisionError"), ("no_such_agents", "ModuleNotFoundError")):
        with pytest.raises(BadAgent) as refused:
            load_agents([module], None)
        assert refused.value.message.startswith(f"AGENT_MODULES: cannot import {module}: {why}")
        assert "\n" not in refused.value.message


def test_the_file_registers_functions_and_more_echoes(module: str, toml: Callable[[str], Path]) -> None:
    path = toml(
        f"""
        default = "wait"
        [agents.wait]
        kind = "python"
        function = "{module}:waits"
        max_attempts = 2
        on_worker_lost = "fail"
        [agents.demo]
        kind = "echo"
        """
    )
    registry = load_agents([], path)
    wait = found(registry, "wait")
    assert (wait.is_async, wait.max_attempts, wait.on_worker_lost) == (True, 2, "fail")
    assert found(registry, "demo").kind == "echo"
    assert registry.default_name() == "wait"


def test_the_file_changes_the_rules_of_a_decorated_agent_and_keeps_the_others(
    module: str, toml: Callable[[str], Path]
) -> None:
    registry = load_agents([module], toml("[agents.triage]\nmax_attempts = 1"))
    assert (found(registry, "triage").max_attempts, found(registry, "triage").timeout_s) == (1, 600)
    assert found(DEFAULT, "triage").max_attempts == 5


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("defualt = 'x'", "unknown key defualt"),
        ("default = 3", "default"),
        ("default = 'a b'", "default"),
        ("agents = 1", "agents is not a table"),
        ("[agents]\nx = 1", "agents.x is not a table"),
        ("[agents.x]\nkind = 'shell'", "agents.x.kind is 'shell'"),
        ("[agents.x]\nkind = ['python']", "agents.x.kind"),
        ("[agents.x]\nkind = 'wizard'", "agents.x.kind is 'wizard'"),
        ("[agents.x]\nkind = 'echo'\nfunction = 'a:b'", "unknown key agents.x.function"),
        ("[agents.x]\nargv = []", "unknown key agents.x.argv"),
        ("[agents.x]", "agents.x.function is missing"),
        ("[agents.x]\nfunction = 'json.dumps'", "agents.x.function is not written as"),
        ("[agents.x]\nfunction = 3", "agents.x.function is not written as"),
        ("[agents.x]\nfunction = 'json:nothing'", "agents.x.function cannot be imported: AttributeError"),
        ("[agents.x]\nfunction = 'json:__name__'", "agent x: 'json' is not a function"),
        ("[agents.x]\nkind = 'echo'\ntimeout_s = 'long'", "agent x: timeout_s"),
        ("[agents.'a b']\nkind = 'echo'", "agent name 'a b'"),
        ("[agents.echo]\nfunction = 'json:dumps'", "agent echo is registered twice"),
        ("[", "cannot read"),
    ],
)
def test_the_file_is_refused_with_one_sentence_that_names_the_key(
    toml: Callable[[str], Path], text: str, named: str
) -> None:
    with pytest.raises(BadAgent) as refused:
        load_agents([], toml(text))
    assert refused.value.message.startswith("AGENTS_FILE: ")
    assert named in refused.value.message
    assert "\n" not in refused.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadAgent, match="AGENTS_FILE: cannot read"):
        load_agents([], tmp_path / "none.toml")
