"""What agents.toml says of a command. Wrong keys and values are refused with words that follow the key's name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dispatch.agents.control import MAX_DELAY_S
from dispatch.agents.said import OUTPUT_LIMIT_BYTES

TASK = "{task}"
STDIN = ("task", "json", "none")
OUTPUT = ("text", "json", "jsonl")
ENDINGS = ("success", "retry", "snooze", "discard")
ERROR = "error"
MOST_OUTPUT_BYTES = 64 * 1024 * 1024
SNOOZE_S = 60.0
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWN_PREFIX = "FLEETSITE_"
KEYS = (
    "argv",
    "stdin",
    "env_allow",
    "env_set",
    "cwd",
    "output",
    "output_limit_bytes",
    "exit_codes",
    "retry_after_s",
    "snooze_s",
)


class WrongKey(Exception):
    """A key of an agent in agents.toml is wrong: `key`, and a `problem` that ends a sentence begun with it."""

    def __init__(self, key: str, problem: str) -> None:
        self.key, self.problem = key, problem
        super().__init__(f"{key} {problem}")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What this process has for commands and models: a place for the directories of sessions (made when it is missing),
    which of its variables are secrets, what it sets for all that it starts, and what a variable that holds a user's
    secret (or its `_FILE` form) says; None when neither is set, ValueError for a file that cannot be read."""

    workdirs: Path
    is_secret: Callable[[str], bool]
    set_always: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    secret: Callable[[str], str | None] = lambda name: None


@dataclass(frozen=True, kw_only=True)
class CommandSpec:
    """One command agent; `cwd` None: a directory for each session. Codes that `endings` lacks are errors."""

    argv: tuple[str, ...]
    stdin: str
    output: str = "text"
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES
    env_allow: tuple[str, ...] = ()
    env_set: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cwd: Path | None = None
    endings: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({0: "success"}))
    retry_after_s: float | None = None
    snooze_s: float = SNOOZE_S

    @property
    def name(self) -> str:
        """The program's own name, for messages."""
        return self.argv[0].rpartition("/")[2]

    def arguments(self, task: str) -> list[str]:
        return [part.replace(TASK, task) for part in self.argv]


def read_spec(table: Mapping[str, Any], ground: Ground) -> CommandSpec:
    """Check the keys of KEYS that `table` has. Raise WrongKey for the first that is wrong."""
    argv = _argv(table)
    by_argument = any(TASK in part for part in argv)
    return CommandSpec(
        argv=argv,
        stdin=_choice(table, "stdin", STDIN, default="none" if by_argument else "task"),
        output=_choice(table, "output", OUTPUT, default="text"),
        output_limit_bytes=_limit(table),
        env_allow=_allowed(table, ground),
        env_set=_fixed(table),
        cwd=_cwd(table),
        endings=_endings(table),
        retry_after_s=_delay(table, "retry_after_s"),
        snooze_s=_delay(table, "snooze_s") or SNOOZE_S,
    )


def _argv(table: Mapping[str, Any]) -> tuple[str, ...]:
    argv = table.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(part, str) for part in argv):
        raise WrongKey("argv", "is not a list of texts: the program, then its arguments")
    if any("\0" in part for part in argv):
        raise WrongKey("argv", "has a NUL character")
    program = argv[0]
    if not program or TASK in program or ("/" in program and not program.startswith("/")):
        raise WrongKey("argv", "does not begin with a program's name or its absolute path")
    return tuple(argv)


def _choice(table: Mapping[str, Any], key: str, known: tuple[str, ...], *, default: str) -> str:
    value = table.get(key, default)
    if value not in known:
        raise WrongKey(key, f"is {value!r}, and not one of {', '.join(known)}")
    return str(value)


def _limit(table: Mapping[str, Any]) -> int:
    value = table.get("output_limit_bytes", OUTPUT_LIMIT_BYTES)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_OUTPUT_BYTES:
        raise WrongKey("output_limit_bytes", f"is not a number of bytes from 1 to {MOST_OUTPUT_BYTES}")
    return value


def _allowed(table: Mapping[str, Any], ground: Ground) -> tuple[str, ...]:
    names = table.get("env_allow", [])
    if not isinstance(names, list) or not all(isinstance(n, str) and VARIABLE.fullmatch(n) for n in names):
        raise WrongKey("env_allow", "is not a list of names of variables")
    for name in names:
        if name.startswith(OWN_PREFIX):
            raise WrongKey(
                "env_allow", f"names {name}, and variables that begin with {OWN_PREFIX} are set for each turn"
            )
        if ground.is_secret(name):
            raise WrongKey(
                "env_allow", f"names {name}, which is a secret of this fleet and is never given to a command"
            )
    return tuple(names)


def _fixed(table: Mapping[str, Any]) -> Mapping[str, str]:
    values = table.get("env_set", {})
    if not isinstance(values, dict):
        raise WrongKey("env_set", "is not a table of texts by the names of variables")
    for name, value in values.items():
        if not VARIABLE.fullmatch(name):
            raise WrongKey(f"env_set.{name}", "is not the name of a variable")
        if name.startswith(OWN_PREFIX):
            raise WrongKey(f"env_set.{name}", f"begins with {OWN_PREFIX}, as only what is set for each turn does")
        if not isinstance(value, str) or "\0" in value:
            raise WrongKey(f"env_set.{name}", "is not a text without NUL characters")
    return MappingProxyType(dict(values))


def _cwd(table: Mapping[str, Any]) -> Path | None:
    value = table.get("cwd", "session")
    if value == "session":
        return None
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise WrongKey("cwd", 'is neither "session" nor an absolute path')
    return Path(value)


def _endings(table: Mapping[str, Any]) -> Mapping[int, str]:
    lists = table.get("exit_codes", {})
    if not isinstance(lists, dict):
        raise WrongKey("exit_codes", f"is not a table of lists: {', '.join(ENDINGS)}")
    endings: dict[int, str] = {}
    for ending, codes in lists.items():
        key = f"exit_codes.{ending}"
        if ending not in ENDINGS:
            raise WrongKey(key, f"is not known; known are {', '.join(ENDINGS)}")
        if not isinstance(codes, list) or not all(_is_code(code) for code in codes):
            raise WrongKey(key, "is not a list of exit codes from 0 to 255")
        for code in codes:
            if endings.setdefault(code, ending) != ending:
                raise WrongKey(key, f"has the code {code}, which {endings[code]} has too")
    if "success" not in lists:
        endings.setdefault(0, "success")
    return MappingProxyType(endings)


def _is_code(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255


def _delay(table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WrongKey(key, "is not a number of seconds")
    if not 0 < value <= MAX_DELAY_S:
        raise WrongKey(key, "is not a number of seconds above 0 and up to 366 days")
    return float(value)
