"""Strict reading of what a caller sent: clean text, bounded depth, no unknown field, and a sentence per wrong field.

REST bodies, query strings and MCP arguments all come through `read_input`. A field's description is the sentence that
tells a caller what would be right.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from dispatch.errors import Invalid

MAX_DEPTH = 64
MAX_NAMED = 20  # wrong fields named in one answer
MAX_FIELD = 120  # characters of a caller's own field name echoed back
FEW_FIELDS = 12  # so many are named where one is wrong
_UNCLEAN = re.compile("[\x00\ud800-\udfff]")

M = TypeVar("M", bound=BaseModel)
Path = tuple[Any, ...]  # a linked list: (key, parent path), () at the root


class Input(BaseModel):
    """A body or query: exact types, no field that is not named here."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def read_input(model: type[M], body: Mapping[str, Any], *, unchecked: Collection[str] = ()) -> M:
    """Build the model, or raise Invalid naming every wrong field.

    The content of `unchecked` fields is left to whoever reads them.
    """
    check_json({key: value for key, value in body.items() if key not in unchecked})
    try:
        return model.model_validate(dict(body))
    except ValidationError as error:
        raise refusal(dict(_sentences(model, error))) from None


def refusal(fields: dict[str, str]) -> Invalid:
    """Invalid with these fields, and a message that says the first of them."""
    first = next(iter(fields.items()), None)
    return Invalid(f"The request is not valid: {first[0]} {first[1]}." if first else None, fields=fields)


def check_json(value: Any) -> None:
    """Refuse NUL, lone surrogates, numbers that are not finite, and nesting over 64 levels, naming where."""
    stack: list[tuple[Any, Path, int]] = [(value, (), 1)]
    while stack:
        node, path, depth = stack.pop()
        if isinstance(node, Mapping):
            for key in node:
                if not isinstance(key, str) or _UNCLEAN.search(key):
                    raise refusal({_dotted(path) or "body": "has a key with a NUL or a lone surrogate"})
            children: Iterator[tuple[Any, Any]] = iter(node.items())
        elif isinstance(node, list | tuple):
            children = enumerate(node)
        else:
            raise refusal({"body": "must be a JSON object"})
        for key, child in children:
            if isinstance(child, str):
                if _UNCLEAN.search(child):
                    raise refusal({_dotted((key, path)): "has a NUL or a lone surrogate"})
            elif isinstance(child, float):
                if not math.isfinite(child):
                    raise refusal({_dotted((key, path)): "must be a finite number"})
            elif isinstance(child, Mapping | list | tuple):
                if depth >= MAX_DEPTH:
                    raise refusal({_top(key, path): f"is nested deeper than {MAX_DEPTH} levels"})
                stack.append((child, (key, path), depth + 1))


def _keys(path: Path) -> list[str]:
    keys = []
    while path:
        keys.append(str(path[0]))
        path = path[1]
    return keys[::-1]


def _dotted(path: Path) -> str:
    return ".".join(_keys(path))[:MAX_FIELD]


def _top(key: Any, path: Path) -> str:
    return (_keys(path) or [str(key)])[0][:MAX_FIELD]


def _sentences(model: type[BaseModel], error: ValidationError) -> Iterator[tuple[str, str]]:
    """One (field, what would be right) per wrong field; the first sentence about a field wins."""
    seen: set[str] = set()
    for detail in error.errors(include_url=False, include_input=False):
        owner, names, right = _locate(model, detail["loc"])
        if detail["type"] == "extra_forbidden":
            names = [*names, str(detail["loc"][-1])]
        name = ".".join(names)[:MAX_FIELD] or "body"
        if name in seen or len(seen) >= MAX_NAMED:
            continue
        seen.add(name)
        yield name, _sentence(owner, right, detail)


def _locate(model: type[BaseModel], location: Collection[int | str]) -> tuple[type[BaseModel], list[str], str | None]:
    """The innermost model that a location leads into, the fields on the way, and what the last of them should be.

    What a location says of the members of unions is left out.
    """
    names: list[str] = []
    right: str | None = None
    for part in location:
        info = model.model_fields.get(part) if isinstance(part, str) else None
        if info is None:
            continue
        names.append(str(part))
        right = info.description
        inner = _inner_model(info.annotation)
        if inner is None:
            break
        model = inner
    return model, names, right


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    for option in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def _sentence(owner: type[BaseModel], right: str | None, detail: Any) -> str:
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(detail["loc"][-1])[:MAX_FIELD], owner.model_fields, 1)
        if near:
            return f"is no field here (did you mean {near[0]}?)"
        few = len(owner.model_fields) <= FEW_FIELDS
        return f"is no field here; there are {', '.join(owner.model_fields)}" if few else "is no field here"
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail["type"] == "missing":
        return f"is missing: {right}" if right else "is missing"
    return f"must be {right}" if right else "is not what it should be"
