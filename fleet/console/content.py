"""What turns were told and what they said: shown to who may read it; others see that it is there, and its length."""

from __future__ import annotations

import json
import re
from typing import Any

from django.http import HttpRequest

from dispatch import states
from dispatch.explaining import explain
from dispatch.models import WorkItem
from fleet.console.roles import READ_CONTENT, Staff, staff_of

SECRET = re.compile(r"(?:^|[_-])(?:passw(?:or)?d|secret|token|api[_-]?key|private[_-]?key|authorization|cookie)$", re.I)
HIDDEN = "(hidden)"
MAX_TEXT = 2_000  # characters shown of one text


def text_for(staff: Staff, text: str, *, most: int = MAX_TEXT) -> str:
    """The text, cut, or in its place how long it is."""
    if staff.may_read_content or not text:
        return text[:most]
    return f"hidden: {len(text):,} characters, needs {READ_CONTENT}"


def masked(value: Any) -> Any:
    """The value, with what stands under a name of a secret hidden, however deep."""
    if isinstance(value, dict):
        return {key: HIDDEN if SECRET.search(str(key)) and inner else masked(inner) for key, inner in value.items()}
    return [masked(inner) for inner in value] if isinstance(value, list) else value


def json_for(staff: Staff, value: Any, *, indent: int | None = None) -> str:
    """A value as text; one that is empty hides nothing."""
    text = json.dumps(masked(value), ensure_ascii=False, indent=indent)
    return text[:MAX_TEXT] if value in ({}, [], None, "") else text_for(staff, text)


def explanation_for(staff: Staff, item: WorkItem) -> str:
    """Why it stands where it stands; a question that it asks is a text of its agent."""
    answer = explain(item)
    if answer["reason"] == states.Refusal.SUSPENDED and not staff.may_read_content:
        return f"it is suspended; what it waits for is hidden, needs {READ_CONTENT}"
    return str(answer["detail"])


def note_reader(request: HttpRequest, row: Any) -> None:
    """Let the columns of a page, which are given the row alone, know who reads them."""
    row.read_by = staff_of(request)


def reader_of(row: Any) -> Staff:
    """Who reads this row; raises AttributeError for one that no page has handed out."""
    reader: Staff = row.read_by
    return reader
