"""What a terminal shows: tables that line up, texts that cannot steer it, a bar only where somebody looks."""

from __future__ import annotations

import io

import pytest

from dispatch.management.progress import Progress
from dispatch.management.tables import cell, harmless, pairs, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("A", "B"), [("long cell", 1), (None, "")]).splitlines() == [
        "A          B",
        "long cell  1",
        "–          –",
    ]


def test_a_table_without_rows_is_its_headings() -> None:
    assert table(("A", "B"), []) == "A  B"


def test_a_long_cell_is_cut_with_a_mark_and_a_fact_is_not() -> None:
    assert cell("x" * 100) == "x" * 59 + "…"
    assert pairs([("task", "x" * 100)]) == "task  " + "x" * 100


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\x9b31m", "\x07", "\u202egnp.exe"])
def test_what_others_wrote_cannot_steer_the_terminal(text: str) -> None:
    assert not {"\x1b", "\r", "\x9b", "\x07", "\u202e"} & set(harmless(text) + cell(text))


def test_lines_and_tabs_of_an_output_stay() -> None:
    assert harmless("one\n\ttwo") == "one\n\ttwo"
    assert cell("one\n\ttwo") == "one two"


def test_a_bar_shows_how_far_it_is_and_is_wiped_at_the_end() -> None:
    screen = Terminal()
    with Progress(screen, "kill") as told:
        told(50, 100)
        assert screen.getvalue() == f"\r\x1b[Kkill [{'#' * 15}{'.' * 15}] 50 of 100"
    assert screen.getvalue().endswith("\r\x1b[K")


def test_nothing_is_drawn_where_nobody_looks() -> None:
    screen = io.StringIO()
    with Progress(screen, "kill") as told:
        told(1, 2)
    assert screen.getvalue() == ""
