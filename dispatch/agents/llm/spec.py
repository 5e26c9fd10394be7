"""What agents.toml says of a model. Wrong keys and values are refused with words that follow the key's name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, SchemaError

from dispatch.agents.command.spec import VARIABLE, Ground, WrongKey
from dispatch.spending import Budget

MAX_MODEL_CHARS = 200
HISTORY_TURNS, MOST_HISTORY_TURNS = 20, 1000
HISTORY_BYTES, MOST_HISTORY_BYTES = 128 * 1024, 192 * 1024  # of a session state that has 256 KiB
TIMEOUT_S = 120.0
RETRIES, MOST_RETRIES = 1, 20
BUDGETS = ("max_requests", "max_tokens", "session_max_tokens")
PRICES = ("input", "output")
KEYS = (
    "model",
    "base_url",
    "api_key_env",
    "instructions",
    "instructions_file",
    "tools",
    "settings",
    "retries",
    "history_turns",
    "history_bytes",
    "prices",
    "output_schema",
    *BUDGETS,
)


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a million tokens cost."""

    input: Decimal
    output: Decimal

    def cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        return (self.input * input_tokens + self.output * output_tokens) / 1_000_000


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One agent of the kind llm. `tools` are paths, imported where the agent runs."""

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    instructions: str = ""
    tools: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({"timeout_s": TIMEOUT_S}))
    retries: int = RETRIES
    history_turns: int = HISTORY_TURNS
    history_bytes: int = HISTORY_BYTES
    prices: Prices | None = None
    output_schema: Mapping[str, Any] | None = None
    budget: Budget = field(default_factory=Budget)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """By which the model calls them."""
        return tuple(map(_name_of, self.tools))


def _name_of(path: str) -> str:
    return path.rpartition(":")[2].rpartition(".")[2]


def read_spec(table: Mapping[str, Any], ground: Ground, beside: Path) -> ModelSpec:
    """Check the keys of KEYS that `table` has; files are looked for in `beside`. Raise WrongKey for the first fault."""
    return ModelSpec(
        model=_model(table),
        base_url=_base_url(table),
        api_key_env=_api_key_env(table, ground),
        instructions=_instructions(table, beside),
        tools=_tools(table),
        settings=_settings(table),
        retries=_count(table, "retries", default=RETRIES, least=0, most=MOST_RETRIES),
        history_turns=_count(table, "history_turns", default=HISTORY_TURNS, least=0, most=MOST_HISTORY_TURNS),
        history_bytes=_count(table, "history_bytes", default=HISTORY_BYTES, least=1024, most=MOST_HISTORY_BYTES),
        prices=_prices(table),
        output_schema=_output_schema(table, beside),
        budget=Budget(**{key: _count(table, key) if key in table else None for key in BUDGETS}),
    )


def _model(table: Mapping[str, Any]) -> str:
    model = table.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL_CHARS or not model.isprintable():
        raise WrongKey("model", f"is not a text of 1 to {MAX_MODEL_CHARS} characters, such as provider:model")
    if "base_url" not in table and not all(model.partition(":")):
        raise WrongKey("model", "is not written as provider:model, which it must be without base_url")
    return model


def _base_url(table: Mapping[str, Any]) -> str | None:
    url = table.get("base_url")
    if url is None:
        return None
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        whole = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1)
    except ValueError:
        parts, whole = None, False
    if parts is None or not whole:
        raise WrongKey("base_url", "is not an http:// or https:// address")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise WrongKey("base_url", "has a user, a query or a fragment; a key belongs into the variable of api_key_env")
    return str(url)


def _api_key_env(table: Mapping[str, Any], ground: Ground) -> str | None:
    name = table.get("api_key_env")
    if name is None:
        return None
    if not isinstance(name, str) or not VARIABLE.fullmatch(name):
        raise WrongKey("api_key_env", "is not the name of a variable; the key itself never stands in this file")
    if ground.is_secret(name):
        raise WrongKey("api_key_env", f"names {name}, which is a secret of this fleet and is never given to a model")
    return name


def _instructions(table: Mapping[str, Any], beside: Path) -> str:
    if "instructions_file" not in table:
        text = table.get("instructions", "")
        if not isinstance(text, str):
            raise WrongKey("instructions", "is not a text")
        return text
    if "instructions" in table:
        raise WrongKey("instructions_file", "stands beside instructions; give one of them")
    return _file(table, "instructions_file", beside)


def _file(table: Mapping[str, Any], key: str, beside: Path) -> str:
    name = table[key]
    if not isinstance(name, str) or not name or "\0" in name:
        raise WrongKey(key, "is not the path of a file")
    try:
        return (beside / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise WrongKey(key, "names a file that is not UTF-8 text") from None
    except OSError as error:
        raise WrongKey(key, f"names a file that cannot be read: {(error.strerror or 'unreadable').lower()}") from None


def _tools(table: Mapping[str, Any]) -> tuple[str, ...]:
    paths = table.get("tools", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise WrongKey("tools", "is not a list of texts, each package.module:function")
    for path in paths:
        if not all(path.partition(":")):
            raise WrongKey("tools", f"has {path!r}, which is not written as package.module:function")
    names = [_name_of(path) for path in paths]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise WrongKey("tools", f"has two functions of the name {doubled}, by which the model calls them")
    return tuple(paths)


def _settings(table: Mapping[str, Any]) -> Mapping[str, Any]:
    given = table.get("settings", {})
    if not isinstance(given, dict):
        raise WrongKey("settings", f"is not a table of {', '.join(SETTINGS)}")
    for key, value in given.items():
        kind, fits, words = SETTINGS.get(key, (None, None, ""))
        if kind is None or fits is None:
            raise WrongKey(f"settings.{key}", f"is not known; known are {', '.join(SETTINGS)}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool) or not fits(value):
            raise WrongKey(f"settings.{key}", f"is not {words}")
    return MappingProxyType({"timeout_s": TIMEOUT_S, **given})


_NUMBER = (int, float)
SETTINGS: dict[str, tuple[Any, Any, str]] = {
    "temperature": (_NUMBER, lambda v: 0 <= v <= 2, "a number from 0 to 2"),
    "top_p": (_NUMBER, lambda v: 0 < v <= 1, "a number above 0 and up to 1"),
    "max_tokens": (int, lambda v: v >= 1, "a number of tokens from 1"),
    "seed": (int, lambda v: True, "an integer"),
    "parallel_tool_calls": (bool, lambda v: True, "true or false"),
    "timeout_s": (_NUMBER, lambda v: math.isfinite(v) and 0 < v <= 3600, "a number of seconds above 0 and up to 3,600"),
}


def _count(
    table: Mapping[str, Any], key: str, *, default: int = 0, least: int = 1, most: int = 1_000_000_000_000
) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise WrongKey(key, f"is not an integer from {least:,} to {most:,}")
    return value


def _prices(table: Mapping[str, Any]) -> Prices | None:
    given = table.get("prices")
    if given is None:
        return None
    if not isinstance(given, dict) or set(given) != set(PRICES):
        raise WrongKey("prices", "is not a table of input and output, each what a million tokens cost")
    return Prices(input=_price(given, "input"), output=_price(given, "output"))


def _price(given: Mapping[str, Any], key: str) -> Decimal:
    value = given[key]
    try:
        price = Decimal(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except InvalidOperation:
        price = None
    if price is None or not price.is_finite() or not 0 <= price <= 1_000_000:
        raise WrongKey(f"prices.{key}", "is not a number from 0 to 1,000,000")
    return price


def _output_schema(table: Mapping[str, Any], beside: Path) -> Mapping[str, Any] | None:
    if "output_schema" not in table:
        return None
    try:
        schema = json.loads(_file(table, "output_schema", beside))
    except ValueError as error:
        raise WrongKey("output_schema", f"names a file that is not JSON ({error})") from None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise WrongKey("output_schema", 'names a file that is not a JSON schema with "type": "object"')
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        problem = f"names a file that is no JSON schema (2020-12): {error.message[:200]}"
        raise WrongKey("output_schema", problem) from None
    return MappingProxyType(schema)
