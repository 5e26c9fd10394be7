"""Make what an agent returned storable: any object in, plain JSON out, with marks that say what was lost.

Nothing here raises, whatever the objects do: a result that cannot be stored must never block the final write.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel

T = TypeVar("T")

MAX_RESULT_BYTES = 1024 * 1024
PREVIEW_BYTES = 16 * 1024
MAX_DEPTH = 64
_SHORT_WAY_COST = 16 * 1024 * 1024
_NODE_COST = 16
_PLAIN_CONTAINERS = (dict, list, tuple)
_MAX_INT_BITS = 14_000  # Python itself refuses to write longer ones in decimal
_REPLACEMENT = "\ufffd"
_BAD = re.compile("[\x00\ud800-\udfff]")
_TRUNCATED = "truncated"


def clean_text(value: str, limit: int | None = None) -> str:
    """Replace NUL and lone surrogates with U+FFFD; cut to `limit` bytes of UTF-8, the cut shown as an ellipsis."""
    text = _BAD.sub(_REPLACEMENT, str.__str__(value))
    if limit is None or len(text) * 4 <= limit:
        return text
    raw = text.encode()
    if len(raw) <= limit:
        return text
    return raw[: max(limit - 3, 0)].decode("utf-8", "ignore") + "…"


def clean_json(value: object, *, limit: int | None = MAX_RESULT_BYTES) -> tuple[Any, tuple[str, ...]]:
    """Return a plain JSON copy of `value`, and a mark for each kind of thing that was lost on the way.

    Marks: nul, surrogate, not_finite, number, bytes, key, object, depth, cycle, truncated. Over `limit` bytes of JSON
    the copy is `{"truncated": true, "bytes": n, "preview": "…"}`; with `limit=None` it is kept as long as it is.
    """
    try:
        return _clean(value, limit)
    except BaseException:  # an object's own methods may raise anything, SystemExit included
        return _marker(value), ("object",)


def copied(tree: Any) -> Any:
    """A copy of a JSON value that shares nothing with it."""
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    return [copied(value) for value in tree] if isinstance(tree, list) else tree


def stored_result(value: object) -> Any:
    """Return what is stored for a result: the clean value itself, or its marked form when something was lost.

    Marked: `{"_cleaned": [marks], "value": …}`, and for a cut one the preview of clean_json.
    """
    tree, marks = clean_json(value)
    if not marks:
        return tree
    lost = [mark for mark in marks if mark != _TRUNCATED]
    if _TRUNCATED not in marks:
        return {"_cleaned": lost, "value": tree}
    return {"_cleaned": lost, **tree} if lost else tree


def describe(error: BaseException, limit: int) -> str:
    """`TypeName: text` of an exception, cleaned and cut; without a traceback, whatever its __str__ does."""
    name = type_name(error)
    try:
        text = clean_text(str(error))
    except BaseException:  # as in clean_json
        text = ""
    return clean_text(f"{name}: {text}" if text else name, limit)


def _clean(value: object, limit: int | None) -> tuple[Any, tuple[str, ...]]:
    walk = _Walk(budget=max(limit or 0, MAX_RESULT_BYTES))
    plain = _plain(value)
    if plain is None:
        tree = walk.visit(value, 0)
        raw = _encode(tree).encode()
    else:
        tree, raw = plain
    marks = tuple(walk.marks)
    if limit is None or (len(raw) <= limit and _TRUNCATED not in walk.marks):
        return tree, marks
    text = tree if isinstance(tree, str) else raw.decode()
    preview = {"truncated": True, "bytes": len(raw), "preview": clean_text(text, PREVIEW_BYTES)}
    return preview, (*(mark for mark in marks if mark != _TRUNCATED), _TRUNCATED)


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: object) -> tuple[Any, bytes] | None:
    """The short way, for what is clean already: a detached copy and its bytes, or None when the long way is needed."""
    try:
        if not _is_small(value):
            return None
        text = _encode(value)
        raw = text.encode()  # raises for a lone surrogate
    except Exception:
        return None
    # the escape is also found in text that only looks so; the long way tells them apart
    return None if "\\u0000" in text else (json.loads(text), raw)


def _is_small(value: object) -> bool:
    """Whether the encoder may be let loose on it: not too deep, no cycle, and nothing shared that unfolds for ever."""
    left = _SHORT_WAY_COST
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for node in level:
            left -= _NODE_COST
            if isinstance(node, str):
                left -= len(node)
            elif isinstance(node, dict):
                inner.extend(dict.values(node))
            elif isinstance(node, (list, tuple)):
                inner.extend(node)
            if left < 0 or len(inner) * _NODE_COST > left:
                return False
        if not inner:
            return True
        level = inner
    # what is left lies in the deepest containers that are kept
    return not any(isinstance(node, (dict, list, tuple)) for node in level)


def type_name(value: object) -> str:
    """The name of a value's type, cleaned."""
    try:
        return clean_text(type(value).__name__, 200)
    except BaseException:  # a metaclass may answer anything
        return "object"


def _marker(value: object) -> str:
    return f"<{type_name(value)}>"


class _Walk:
    """The long way: one walk over anything, bounded in depth and in size."""

    def __init__(self, *, budget: int) -> None:
        self.marks: dict[str, None] = {}  # an ordered set
        self._left = budget
        self._path: set[int] = set()

    def visit(self, value: object, depth: int) -> Any:
        self._left -= 2  # no JSON value takes less, with its separator
        try:
            return self._container(value, depth) if type(value) in _PLAIN_CONTAINERS else self._scalar(value, depth)
        except Exception:
            return self._lost("object", _marker(value))

    def _lost(self, mark: str, instead: T) -> T:
        self.marks[mark] = None
        return instead

    def _text(self, value: str) -> str:
        text = str.__str__(value)
        self._left -= len(text)
        if "\x00" in text:
            self.marks["nul"] = None
        cleaned = _BAD.sub(_REPLACEMENT, text)
        if cleaned != text.replace("\x00", _REPLACEMENT):
            self.marks["surrogate"] = None
        return cleaned

    def _scalar(self, value: object, depth: int) -> Any:
        match value:
            case None | True | False:
                return value
            case Enum():
                return self.visit(value.value, depth + 1) if depth < MAX_DEPTH else self._lost("depth", None)
            case str():
                return self._text(value)
            case int():
                return self._lost("number", "<int>") if int.bit_length(value) > _MAX_INT_BITS else int.__pos__(value)
            case float():
                return float.__pos__(value) if math.isfinite(value) else self._lost("not_finite", None)
            case bytes() | bytearray() | memoryview():
                return self._bytes(bytes(value))
            case datetime() | date() | time():
                return self._text(value.isoformat())
            case timedelta():
                return value.total_seconds()
            case Decimal() | UUID() | PurePath():
                return self._text(str(value))
            case _:
                return self._container(value, depth)

    def _bytes(self, value: bytes) -> str:
        try:
            return self._text(value.decode())
        except UnicodeDecodeError:
            return self._lost("bytes", self._text(value.decode("utf-8", "replace")))

    def _container(self, value: object, depth: int) -> Any:
        fill = self._filler(value)
        if fill is None:
            return self._lost("object", _marker(value))
        if id(value) in self._path:
            return self._lost("cycle", None)
        if depth >= MAX_DEPTH:
            return self._lost("depth", None)
        self._path.add(id(value))
        try:
            return fill(depth + 1)
        finally:
            self._path.discard(id(value))

    def _filler(self, value: object) -> Callable[[int], Any] | None:
        """How to copy this container: read by the built-in types' own methods where there are any."""
        match value:
            case dict():
                return lambda depth: self._object(iter(dict.items(value)), depth)
            case list() | tuple() | set() | frozenset() | deque():
                return lambda depth: self._array(iter(value), depth)
            case Mapping():
                return lambda depth: self._object(iter(value.items()), depth)
            case BaseModel():
                return lambda depth: self.visit(value.model_dump(), depth)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                pairs = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
                return lambda depth: self._object(pairs, depth)
        to_list = getattr(type(value), "tolist", None)  # arrays and their scalars
        return None if to_list is None else lambda depth: self.visit(to_list(value), depth)

    def _within(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            if self._left < 0:
                self.marks[_TRUNCATED] = None
                return
            yield item

    def _array(self, items: Iterator[Any], depth: int) -> list[Any]:
        return [self.visit(item, depth) for item in self._within(items)]

    def _object(self, pairs: Iterator[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        for key, item in self._within(pairs):
            name = self.visit(key, depth)
            if not isinstance(name, str):
                if isinstance(name, (list, dict)):
                    self.marks["key"] = None
                name = _encode(name)
            if name in copy:
                self.marks["key"] = None
            copy[name] = self.visit(item, depth)
        return copy
