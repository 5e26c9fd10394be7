"""Anything that an agent returns can be stored."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from dispatch.agents.clean import MAX_DEPTH, MAX_RESULT_BYTES, clean_json, clean_text, describe, stored_result


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Model(BaseModel):
    at: date
    parts: list[int]


@dataclass
class Point:
    x: int
    label: str


class Hostile:
    """Raises from whatever is called on it."""

    def __init__(self, error: type[BaseException] = RuntimeError) -> None:
        self.__dict__["error"] = error

    def _raise(self, *_: object) -> Any:
        raise self.__dict__["error"]("hostile")

    __str__ = __repr__ = __iter__ = __len__ = __bool__ = __getattr__ = _raise
    __hash__ = object.__hash__


class HostileClass:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("hostile")


class HostileDict(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("hostile")

    keys = values = __iter__ = items


class HostileMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        yield "a"
        raise SystemExit(3)

    def __len__(self) -> int:
        return 1


class EndlessMapping(HostileMapping):
    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            yield str(number)
            number += 1

    def __getitem__(self, key: str) -> Any:
        return key


class HostileError(Exception):
    def __str__(self) -> str:
        raise SystemExit("hostile")


HOSTILE = [
    Hostile(),
    Hostile(KeyboardInterrupt),
    Hostile(SystemExit),
    HostileClass(),
    HostileDict(a=1),
    HostileMapping(),
    HostileError(),
    object(),
    Hostile,
    (n for n in range(3)),
    lambda: None,
]


def storable(value: object) -> bool:
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    text.encode()
    return re.search(r"(?<!\\)(\\\\)*\\u0000", text) is None


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.builds(lambda: 10**5000)
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()))
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.complex_numbers()
    | st.integers(0, len(HOSTILE) - 1).map(lambda index: HOSTILE[index])
    | st.sampled_from([Colour.RED, Level.LOW, Point(1, "\x00"), {1, 2}, deque([1, float("nan")])])
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.lists(st.tuples(st.text() | st.integers() | st.floats() | st.tuples(st.text()) | st.none(), inner)).map(
            dict
        )
    ),
    max_leaves=20,
)


@given(ANYTHING)
@settings(deadline=None, max_examples=200)
def test_anything_becomes_storable_and_cleaning_again_changes_nothing(value: object) -> None:
    tree, _ = clean_json(value)
    assert storable(tree)
    assert storable(stored_result(value))
    assert clean_json(tree) == (tree, ())


@pytest.mark.parametrize(
    "value",
    [None, True, 1, -0.0, "text", "ä😀", r"\u0000 in words", "", {}, [], {"a": [1, {"b": None}]}, 10**400],
)
def test_what_is_clean_stays_as_it_is_and_carries_no_mark(value: object) -> None:
    tree, marks = clean_json(value)
    assert (json.dumps(tree), marks) == (json.dumps(value), ())
    assert stored_result(value) == value


def test_the_copy_is_detached_from_what_the_agent_keeps() -> None:
    kept: dict[str, Any] = {"a": [1]}
    tree, _ = clean_json(kept)
    kept["a"].append(2)
    assert tree == {"a": [1]}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, 2), [1, 2]),
        ({"a": {3}}, {"a": [3]}),
        ({2: "a", None: "b", True: "c"}, {"2": "a", "null": "b", "true": "c"}),
        (b"bytes", "bytes"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        (timedelta(minutes=2), 120.0),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), str(UUID(int=1))),
        (PurePosixPath("a/b"), "a/b"),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (Point(1, "p"), {"x": 1, "label": "p"}),
        ([Model(at=date(2026, 1, 2), parts=[1])], [{"at": "2026-01-02", "parts": [1]}]),
        ({date(2026, 1, 2): 1, "x": deque([1])}, {"2026-01-02": 1, "x": [1]}),
    ],
)
def test_common_types_have_their_natural_json_and_no_mark(value: object, plain: object) -> None:
    tree, marks = clean_json(value)
    assert (tree, marks) == (plain, ())


@pytest.mark.parametrize(
    ("value", "plain", "marks"),
    [
        ("a\x00b", "a\ufffdb", ("nul",)),
        ("a\ud800b", "a\ufffdb", ("surrogate",)),
        ("\x00\ud83d\ude00", "\ufffd\ufffd\ufffd", ("nul", "surrogate")),
        ({"x": float("nan"), "y": -math.inf}, {"x": None, "y": None}, ("not_finite",)),
        ({"k\x00": 1}, {"k\ufffd": 1}, ("nul",)),
        (b"\xff", "\ufffd", ("bytes",)),
        ([object()], ["<object>"], ("object",)),
        pytest.param(10**5000, "<int>", ("number",), id="a number of 5,001 digits"),
        ({(1, 2): 3}, {"[1,2]": 3}, ("key",)),
        ({date(2026, 1, 2): 1, "2026-01-02": 2}, {"2026-01-02": 2}, ("key",)),
    ],
)
def test_what_is_lost_is_marked(value: object, plain: object, marks: tuple[str, ...]) -> None:
    assert clean_json(value) == (plain, marks)
    assert stored_result(value) == {"_cleaned": list(marks), "value": plain}


def test_a_cycle_ends() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert clean_json(loop) == ([1, None], ("cycle",))


def test_what_is_shared_but_not_a_cycle_is_copied() -> None:
    shared = [float("inf")]
    assert clean_json([shared, shared]) == ([[None], [None]], ("not_finite",))


@pytest.mark.parametrize(("depth", "marks"), [(MAX_DEPTH, ()), (MAX_DEPTH + 1, ("depth",)), (100_000, ("depth",))])
def test_depth_is_bounded(depth: int, marks: tuple[str, ...]) -> None:
    deep: list[Any] = []
    for _ in range(depth - 1):
        deep = [deep]
    tree, found = clean_json(deep)
    assert found == marks
    assert clean_json(tree) == (tree, ())


def test_a_result_over_one_mib_is_kept_as_a_marked_preview() -> None:
    tree, marks = clean_json("x" * 5_000_000)
    assert marks == ("truncated",)
    assert tree == {"truncated": True, "bytes": 5_000_002, "preview": tree["preview"]}
    assert tree["preview"].startswith("xxx")
    assert len(json.dumps(tree)) < 20_000
    assert stored_result("x" * 5_000_000) == tree


def test_exactly_one_mib_is_kept_whole() -> None:
    assert clean_json("x" * (MAX_RESULT_BYTES - 2))[1] == ()
    assert clean_json("x" * (MAX_RESULT_BYTES - 1))[1] == ("truncated",)


def test_a_preview_says_also_what_was_cleaned() -> None:
    stored = stored_result("\x00" + "x" * 2_000_000)
    assert (stored["_cleaned"], stored["truncated"]) == (["nul"], True)
    assert stored["preview"].startswith("\ufffdxxx")


@pytest.mark.parametrize("leaf", [1, "x" * 1000, {}])
def test_a_clean_tree_that_unfolds_without_end_is_cut(leaf: object) -> None:
    folded: list[Any] = [leaf]
    for _ in range(50):
        folded = [folded, folded]
    assert clean_json(folded)[1] == ("truncated",)


def test_a_tree_that_unfolds_without_end_is_cut() -> None:
    folded: list[Any] = [float("nan")]
    for _ in range(50):
        folded = [folded, folded]
    tree, marks = clean_json(folded)
    assert set(marks) == {"not_finite", "truncated"}
    assert tree["truncated"] is True
    assert clean_json(EndlessMapping())[1] == ("truncated",)


@given(st.text(st.characters(codec=None, exclude_categories=())), st.integers(3, 50))
def test_clean_text_is_storable_and_keeps_its_limit(text: str, limit: int) -> None:
    cut = clean_text(text, limit)
    assert storable(cut)
    assert len(cut.encode()) <= limit
    assert clean_text(text) == re.sub("[\x00\ud800-\udfff]", "\ufffd", text)


def test_an_exception_is_described_by_type_and_text() -> None:
    assert describe(ValueError("boom\x00"), 100) == "ValueError: boom\ufffd"
    assert describe(ValueError(), 100) == "ValueError"
    assert describe(HostileError(), 100) == "HostileError"
    assert len(describe(ValueError("x" * 5_000_000), 4096).encode()) == 4096
