"""Which agents this process can run: the decorated functions, agents.toml, and the built-in echo."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dispatch.agents import echo as echo_agent
from dispatch.agents.clean import describe
from dispatch.agents.command.agent import CommandAgent
from dispatch.agents.command.spec import KEYS as COMMAND_KEYS
from dispatch.agents.command.spec import Ground, WrongKey, read_spec
from dispatch.agents.llm.agent import ModelAgent
from dispatch.agents.llm.spec import KEYS as MODEL_KEYS
from dispatch.agents.llm.spec import read_spec as read_model_spec
from dispatch.envelope import is_name
from dispatch.errors import DispatchError
from dispatch.ports import Lease
from dispatch.retry import BASE_S, CAP_S, MAX_ATTEMPTS, RetryPolicy
from dispatch.states import GOAL_LOOP

Fn = TypeVar("Fn", bound=Callable[..., Any])

STOP_GRACE_S = 10.0
ON_WORKER_LOST = ("retry", "fail")
MAX_ATTEMPTS_LIMIT = 1000
COMMAND_SETTLE_S = 5.0  # after the grace, for a command's last process to be gone and its output to be written
TASK = "task"  # built in for the tasks of Django, and never the default agent
KINDS = ("python", "echo", "command", "llm")
_OWN_KEYS = {"python": ("function",), "echo": (), "command": COMMAND_KEYS, "llm": MODEL_KEYS}
_OPTIONS = (
    "max_attempts",
    "timeout_s",
    "stop_grace_s",
    "on_worker_lost",
    "backoff_base_s",
    "backoff_cap_s",
)


class BadAgent(DispatchError):
    """An agent is not declared properly."""

    code = "invalid"


@dataclass(kw_only=True, slots=True, eq=False)
class RegisteredAgent:
    """A named function with the rules for its runs; times in seconds, None: no rule of its own."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    kind: str = "python"
    description: str = ""
    max_attempts: int | None = None
    timeout_s: float | None = None
    stop_grace_s: float = STOP_GRACE_S
    on_worker_lost: str | None = None
    backoff_base_s: float = BASE_S
    backoff_cap_s: float = CAP_S
    prepare: Callable[[], None] | None = None  # what a process that runs it must do first; raises BadAgent

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not is_name(self.name):
            raise BadAgent(f"agent name {self.name!r} does not match [A-Za-z0-9._:@-]{{1,200}}")
        if not callable(self.fn):
            raise BadAgent(f"agent {self.name}: {self.fn!r} is not a function")
        if inspect.isgeneratorfunction(self.fn) or inspect.isasyncgenfunction(self.fn):
            raise BadAgent(f"agent {self.name}: a generator cannot be an agent; use turn.emit for streamed output")
        attempts = self.max_attempts
        if attempts is not None and not (_is_number(attempts, int) and 1 <= attempts <= MAX_ATTEMPTS_LIMIT):
            raise BadAgent(f"agent {self.name}: max_attempts is an integer from 1 to {MAX_ATTEMPTS_LIMIT}")
        if self.timeout_s is not None and not (_is_number(self.timeout_s) and self.timeout_s > 0):
            raise BadAgent(f"agent {self.name}: timeout_s is a number of seconds above 0")
        for option in ("stop_grace_s", "backoff_base_s", "backoff_cap_s"):
            value = getattr(self, option)
            if not (_is_number(value) and value >= 0):
                raise BadAgent(f"agent {self.name}: {option} is a number of seconds, 0 or more")
        if self.on_worker_lost not in (None, *ON_WORKER_LOST):
            raise BadAgent(f"agent {self.name}: on_worker_lost is one of {', '.join(ON_WORKER_LOST)}")

    @property
    def policy(self) -> RetryPolicy:
        return _policy(self.backoff_base_s, self.backoff_cap_s, self.max_attempts or MAX_ATTEMPTS)

    @property
    def origin(self) -> tuple[str, str]:
        """The same place under the same name is the same agent."""
        return origin_of(self.fn)


def origin_of(fn: Callable[..., Any]) -> tuple[str, str]:
    """Where a function is written: its module and its name there."""
    fn = inspect.unwrap(fn)
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__module__", "")), str(getattr(fn, "__qualname__", type(fn).__qualname__))


@functools.cache
def _policy(base_s: float, cap_s: float, max_attempts: int) -> RetryPolicy:
    return RetryPolicy(base_s=base_s, cap_s=cap_s, max_attempts=max_attempts)


def _is_number(value: object, kind: type[int] | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)  # type: ignore[arg-type]


def _registered(name: str, fn: Callable[..., Any], *, kind: str = "python", **options: Any) -> RegisteredAgent:
    call = type(fn).__call__  # of an object that is called like a function
    return RegisteredAgent(
        name=name,
        fn=fn,
        kind=kind,
        is_async=inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call),
        description=next(iter((inspect.getdoc(fn) or "").splitlines()), ""),
        **options,
    )


class Registry:
    """Agents by name. What it does not have itself it finds in its parent."""

    def __init__(self, *, parent: Registry | None = None) -> None:
        self._agents: dict[str, RegisteredAgent] = {}
        self._parent = parent
        self.around_goal: Callable[[RegisteredAgent], RegisteredAgent] | None = None  # set where goals can be run
        self.toml_default: str | None = None

    def add(self, new: RegisteredAgent) -> None:
        """Register; refuses another function under a name that is taken."""
        old = self.get(new.name)
        if old is not None and old.origin != new.origin:
            raise BadAgent(
                f"agent {new.name} is registered twice: by {'.'.join(old.origin)} and {'.'.join(new.origin)}"
            )
        self._agents[new.name] = new

    def get(self, name: str) -> RegisteredAgent | None:
        """None when this process does not have the agent."""
        own = self._agents.get(name)
        return own if own is not None or self._parent is None else self._parent.get(name)

    def runner_of(self, lease: Lease) -> RegisteredAgent | None:
        """What runs this turn: its agent, or the loop around it when the job has a goal; None when it is not here."""
        agent = self.get(lease.agent_name)
        if agent is None or lease.kind != GOAL_LOOP:
            return agent
        return self.around_goal(agent) if self.around_goal is not None else None

    def names(self) -> tuple[str, ...]:
        inherited = self._parent.names() if self._parent else ()
        return tuple(sorted({*self._agents, *inherited}))

    def default_name(self) -> str:
        """The agent of a dispatch that names none: agents.toml's default, else the only one not built in, else echo."""
        if self.toml_default is not None:
            return self.toml_default
        others = [name for name in self.names() if name != echo_agent.NAME and not self._runs_tasks(name)]
        return others[0] if len(others) == 1 else echo_agent.NAME

    def _runs_tasks(self, name: str) -> bool:
        found = self.get(name)
        return found is not None and found.kind == TASK


DEFAULT = Registry()
DEFAULT.add(_registered(echo_agent.NAME, echo_agent.echo, kind="echo"))


def agent(
    name: str,
    *,
    max_attempts: int | None = None,
    timeout_s: float | None = None,
    stop_grace_s: float = STOP_GRACE_S,
    on_worker_lost: str | None = None,
    backoff_base_s: float = BASE_S,
    backoff_cap_s: float = CAP_S,
) -> Callable[[Fn], Fn]:
    """Register a function, sync or async, as the agent `name`. Raise BadAgent for a bad option or a taken name."""

    def register(fn: Fn) -> Fn:
        DEFAULT.add(
            _registered(
                name,
                fn,
                max_attempts=max_attempts,
                timeout_s=timeout_s,
                stop_grace_s=stop_grace_s,
                on_worker_lost=on_worker_lost,
                backoff_base_s=backoff_base_s,
                backoff_cap_s=backoff_cap_s,
            )
        )
        return fn

    return register


def load_agents(modules: Sequence[str], agents_file: Path | None, ground: Ground | None = None) -> Registry:
    """Import AGENT_MODULES, read AGENTS_FILE, and return what this process can run, echo included.

    Commands need a `ground` to stand on. Raise BadAgent with one sentence that names the variable and what is wrong.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise BadAgent(f"AGENT_MODULES: cannot import {module}: {describe(error, 500)}") from error
    registry = Registry(parent=DEFAULT)
    if agents_file is not None:
        _read_file(registry, agents_file, ground)
    return registry


def _read_file(registry: Registry, path: Path, ground: Ground | None) -> None:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadAgent(f"AGENTS_FILE: cannot read {path}: {describe(error, 500)}") from error
    _refuse_unknown(content, ("default", "agents"), where="")
    agents = content.get("agents", {})
    if not isinstance(agents, dict):
        raise BadAgent("AGENTS_FILE: agents is not a table")
    for name, options in agents.items():
        try:
            registry.add(_from_file(registry, name, options, ground, path.parent))
        except BadAgent as error:
            if error.message.startswith("AGENTS_FILE"):
                raise
            raise BadAgent(f"AGENTS_FILE: {error.message}") from error
    default = content.get("default")
    if default is not None and not (isinstance(default, str) and is_name(default)):
        raise BadAgent("AGENTS_FILE: default is not the name of an agent")
    registry.toml_default = default


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str], *, where: str) -> None:
    for key in table:
        if key not in known:
            raise BadAgent(f"AGENTS_FILE: unknown key {where}{key}; known are {', '.join(known)}")


def _from_file(registry: Registry, name: str, options: object, ground: Ground | None, beside: Path) -> RegisteredAgent:
    where = f"agents.{name}"
    if not isinstance(options, dict):
        raise BadAgent(f"AGENTS_FILE: {where} is not a table")
    kind = options.get("kind", "python")
    if kind not in KINDS:
        raise BadAgent(f"AGENTS_FILE: {where}.kind is {kind!r}, known kinds are {', '.join(KINDS)}")
    _refuse_unknown(options, ("kind", *_OWN_KEYS[kind], *_OPTIONS), where=f"{where}.")
    rules = {key: options[key] for key in _OPTIONS if key in options}
    if kind == "echo":
        return _registered(name, echo_agent.echo, kind=kind, **rules)
    if kind == "command":
        return _command(name, options, rules, _standing(name, kind, ground))
    if kind == "llm":
        return _model(name, options, rules, _standing(name, kind, ground), beside)
    if "function" in options:
        return _registered(name, _function(options["function"], where), **rules)
    known = registry.get(name)
    if known is None:
        raise BadAgent(f"AGENTS_FILE: {where}.function is missing, and no module of AGENT_MODULES registers {name}")
    return replace(known, **rules)


def _standing(name: str, kind: str, ground: Ground | None) -> Ground:
    if ground is None:
        raise BadAgent(f"AGENTS_FILE: agents.{name} is of the kind {kind}, and this process has no place for one")
    return ground


def _command(name: str, options: dict[str, Any], rules: dict[str, Any], ground: Ground) -> RegisteredAgent:
    grace_s = rules.get("stop_grace_s", STOP_GRACE_S)
    try:
        command = CommandAgent(read_spec(options, ground), ground, grace_s)
    except WrongKey as error:
        raise BadAgent(f"AGENTS_FILE: agents.{name}.{error}") from None
    made = _registered(name, command, kind="command", **rules)
    return replace(made, stop_grace_s=made.stop_grace_s + COMMAND_SETTLE_S)


def _model(name: str, options: dict[str, Any], rules: dict[str, Any], ground: Ground, beside: Path) -> RegisteredAgent:
    try:
        asks = ModelAgent(read_model_spec(options, ground, beside), ground, name)
    except WrongKey as error:
        raise BadAgent(f"AGENTS_FILE: agents.{name}.{error}") from None

    def prepare() -> None:
        try:
            asks.prepare()
        except WrongKey as error:
            raise BadAgent(f"AGENTS_FILE: agents.{name}.{error}") from error

    return _registered(name, asks, kind="llm", prepare=prepare, **rules)


def _function(path: object, where: str) -> Callable[..., Any]:
    module, colon, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not (module and colon and name):
        raise BadAgent(f"AGENTS_FILE: {where}.function is not written as package.module:function")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise BadAgent(f"AGENTS_FILE: {where}.function cannot be imported: {describe(error, 500)}") from error
    return found
