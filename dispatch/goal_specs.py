"""What a goal's validation and constraints may be, wherever it is dispatched. Raises ValueError, in a field's words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from dispatch.envelope import is_name
from dispatch.json_text import json_size

MAX_GOAL_BYTES = 64 * 1024
MAX_ARGUMENTS = 64
MAX_SECONDS = 366 * 86400.0
MAX_COMMAND_S = 86400.0
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_validation(rule: dict[str, Any]) -> dict[str, Any]:
    """A command with its arguments (and `timeout_s`), a check's name, or a JSON schema; nothing is run."""
    if json_size(rule) > MAX_GOAL_BYTES:
        raise ValueError("must be an object of at most 64 KiB")
    match rule:
        case {"command": [str(), *_] as argv, **rest} if _is_argv(argv) and not rest.keys() - {"timeout_s"}:
            if "timeout_s" in rest and not _is_seconds(rest["timeout_s"], MAX_COMMAND_S):
                raise ValueError("has a timeout_s that is not a number of seconds above 0 and up to 86400")
        case {"check": str(name), **rest} if not rest and is_name(name):
            pass
        case {"schema": dict(schema), **rest} if not rest:
            _check_schema(schema)
        case _:
            raise ValueError("must be an object with one of command (list of texts), check (name) and schema (object)")
    return rule


def check_constraints(given: dict[str, Any] | list[str] | None) -> dict[str, Any] | list[str] | None:
    if given is None:
        return None
    if json_size(given) > MAX_GOAL_BYTES:
        raise ValueError("must be an object or a list of at most 64 KiB")
    if isinstance(given, dict) and "max_seconds" in given and not _is_seconds(given["max_seconds"], MAX_SECONDS):
        raise ValueError("has a max_seconds that is not a number of seconds above 0 and up to 366 days")
    return given


def _is_argv(argv: list[Any]) -> bool:
    return len(argv) <= MAX_ARGUMENTS and all(isinstance(part, str) for part in argv)


def _is_seconds(value: object, most: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 < value <= most


def _check_schema(schema: dict[str, Any]) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"has a schema that is no JSON schema (2020-12): {error.message[:200]}") from None
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise ValueError(f"has a schema that refers to {reference[:200]}; only what lies in it, #…, is read")


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (node[key] for key in _REFERENCES if isinstance(node.get(key), str))
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _references(child)
