"""What may be done to rows of a page, and what the page that asks for it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import BadRequest

from dispatch.access import Caller
from dispatch.errors import DispatchError
from fleet.console.labels import Label

TARGET = re.compile(r"([0-9]{1,19})=([A-Za-z0-9_.-]{0,80})")

Callers = Callable[[str], Caller]  # the person as a caller in a tenant
Told = Iterator[tuple[Any, str]]  # row, outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """One thing that may be done to rows. `expects` is what must still be so when it is confirmed."""

    name: str
    title: str
    says: str
    act: Callable[[Callers, Sequence[Any], str], Told]
    applies: Callable[[Any], bool]
    expects: Callable[[Any], str] = lambda row: ""
    needs_reason: bool = True
    destructive: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    name: str
    href: str
    label: Label
    tenant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """How many of the rows are in one state, and whether the verb does something to them."""

    count: int
    label: Label
    applies: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    action: str
    title: str
    applies: bool
    destructive: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirming:
    """All that the confirming page prints. `type_this` is what has to be typed, "" for nothing."""

    question: str
    verb: Verb
    action: str
    groups: list[Group]
    lines: list[Line]
    more: int
    targets: str
    request_id: str
    reason: str
    type_this: str
    problem: str
    list_href: str


def read_targets(text: str, most: int) -> dict[int, str]:
    """{primary key: what was seen of it}; raise BadRequest for a form that is not whole."""
    found = [TARGET.fullmatch(part) for part in text.split(",")]
    if not text or len(found) > most or not all(found):
        raise BadRequest("targets: must be those of the form")
    return {int(match[1]): match[2] for match in found if match}


def count_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {outcome.replace('_', ' ')}" for outcome, count in sorted(counts.items())) or "nothing"


def by_tenant(rows: Iterable[Any]) -> dict[str, list[Any]]:
    parts: dict[str, list[Any]] = {}
    for row in rows:
        parts.setdefault(row.tenant, []).append(row)
    return parts


def each(call: Callable[[Caller, Any, str], str]) -> Callable[[Callers, Sequence[Any], str], Told]:
    """One row after the other; a refusal is that one's outcome and stops no other."""

    def act(callers: Callers, rows: Sequence[Any], reason: str) -> Told:
        for row in rows:
            try:
                outcome = call(callers(row.tenant), row, reason)
            except DispatchError as refused:
                outcome = refused.code
            yield row, outcome

    return act
