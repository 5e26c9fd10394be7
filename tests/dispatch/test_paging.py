"""Cursors: a place in a list, in words that only the list itself reads."""

from __future__ import annotations

import base64
import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import Invalid
from dispatch.paging import decode_cursor, encode_cursor

BAD_PLACES = (b"", b":", b":-1", b":+1", b":1.5", b": 1", b":" + b"9" * 30, b":\xd9\xa3", b"s:5")


@given(st.sampled_from(["job", "session", "turn"]), st.integers(0, 10**18 - 1))
def test_a_cursor_comes_back_as_the_place_it_was_made_of(kind: str, position: int) -> None:
    assert decode_cursor(kind, encode_cursor(kind, position)) == position


def test_no_cursor_is_the_beginning() -> None:
    assert decode_cursor("job", None) is None


def test_a_cursor_is_safe_in_an_address() -> None:
    assert all(re.fullmatch("[A-Za-z0-9_-]+", encode_cursor("job", n)) for n in range(300))


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "=", "job:5", "ä", "%%", " ", "\x00", encode_cursor("session", 5)]
    + [base64.urlsafe_b64encode(b"job" + rest).decode() for rest in BAD_PLACES],
)
def test_what_no_page_has_answered_is_refused_and_named(cursor: str) -> None:
    with pytest.raises(Invalid) as refusal:
        decode_cursor("job", cursor)
    assert list(refusal.value.fields) == ["cursor"]


@given(st.text(max_size=60))
def test_no_text_is_more_than_refused(cursor: str) -> None:
    with contextlib.suppress(Invalid):
        assert isinstance(decode_cursor("job", cursor), int)
