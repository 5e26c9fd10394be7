"""Whose trace context is believed."""

from __future__ import annotations

import pytest

from dispatch.tracing import traceparent_from

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("text", [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"])
def test_a_context_that_keeps_the_rules_is_taken_as_it_is(text: str) -> None:
    assert traceparent_from(text) == text


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hello",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE[:-1]}-{SPAN}-01",
    ],
)
def test_one_that_breaks_them_is_no_ones(text: str | None) -> None:
    assert traceparent_from(text) is None
