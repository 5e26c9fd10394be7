"""The lines by which a command tells more than text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from dispatch.agents import Discard, NeedsInput, Retry, Snooze
from dispatch.agents.command.lines import MAX_LINE_BYTES, BadLine, Lines


@dataclass
class Ear:
    said: list[Any] = field(default_factory=list)

    def text(self, text: str) -> None:
        self.said.append(text)

    def progress(self, done: float, total: float | None, message: str) -> None:
        self.said.append((done, total, message))

    def checkpoint(self, value: Any) -> None:
        self.said.append({"checkpoint": value})


def heard(*lines: str | bytes) -> tuple[Lines, list[Any]]:
    ear = Ear()
    said = Lines(ear)
    for line in lines:
        said.feed((line if isinstance(line, bytes) else line.encode()) + b"\n")
    said.close()
    return said, ear.said


def test_what_carries_our_mark_is_understood_and_everything_else_is_output() -> None:
    lines, said = heard(
        "begin",
        '{"type": "result", "value": 1}',
        ' {"fleetsite": "output", "text": "a\\u00e9"}',
        '{"fleetsite": "progress", "done": 1, "total": 2.5, "message": "m"}',
        '{"fleetsite": "progress", "done": 2}',
        '{"fleetsite": "checkpoint", "value": null}',
        '["fleetsite"]',
        '{"fleetsite": "broken',
        '{"fleetsite": ' + "[" * 100_000,
        b"\xff\x00",
        "",
    )
    assert said[:2] == ["begin\n", '{"type": "result", "value": 1}\n']
    assert said[2:6] == ["aé", (1, 2.5, "m"), (2, None, ""), {"checkpoint": None}]
    assert said[6:8] == ['["fleetsite"]\n', '{"fleetsite": "broken\n']
    assert said[9:] == ["\ufffd\x00\n", "\n"]
    assert (lines.result.value, lines.state, lines.ask) == (None, None, None)


def test_the_last_result_state_and_question_count() -> None:
    lines, said = heard(
        '{"fleetsite": "result", "value": 1}',
        '{"fleetsite": "result", "value": {"a": true}, "message": "done"}',
        '{"fleetsite": "state", "value": {"n": 1}}',
        '{"fleetsite": "retry"}',
        '{"fleetsite": "needs_input", "question": "which?", "choices": ["a", "b"]}',
    )
    assert (lines.result.value, lines.result.message, lines.state) == ({"a": True}, "done", {"n": 1})
    assert isinstance(lines.ask, NeedsInput)
    assert (lines.ask.question, lines.ask.choices) == ("which?", ("a", "b"))
    assert said == []


@pytest.mark.parametrize(
    ("line", "kind", "fact"),
    [
        ('{"fleetsite": "retry", "after_s": 1.5}', Retry, ("after_s", 1.5)),
        ('{"fleetsite": "retry"}', Retry, ("after_s", None)),
        ('{"fleetsite": "snooze", "after_s": 3}', Snooze, ("after_s", 3.0)),
        ('{"fleetsite": "discard", "reason": "no use"}', Discard, ("reason", "no use")),
    ],
)
def test_a_line_can_ask_for_another_end_of_the_turn(line: str, kind: type, fact: tuple[str, object]) -> None:
    ask = heard(line)[0].ask
    assert isinstance(ask, kind)
    assert getattr(ask, fact[0]) == fact[1]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"fleetsite": "reslut", "value": 1}', "reslut, is not known; known are output, progress"),
        ('{"fleetsite": 1}', "is not known"),
        ('{"fleetsite": ["output"]}', "is not known"),
        ('{"fleetsite": "output"}', "lacks text"),
        ('{"fleetsite": "output", "text": 1}', "has a text that is not a text"),
        ('{"fleetsite": "output", "text": "a", "colour": 1}', "has the unknown field colour"),
        ('{"fleetsite": "progress", "done": true}', "has a done that is not a number"),
        ('{"fleetsite": "progress", "done": NaN}', "has a done that is not finite"),
        ('{"fleetsite": "state", "value": [1]}', "has a value that is not an object"),
        ('{"fleetsite": "result"}', "lacks value"),
        ('{"fleetsite": "snooze"}', "lacks after_s"),
        ('{"fleetsite": "snooze", "after_s": -1}', "is refused: after lies outside"),
        ('{"fleetsite": "needs_input", "question": " "}', "is refused: a question is a text"),
        ('{"fleetsite": "needs_input", "question": "?", "choices": [1]}', "is refused: each choice"),
    ],
)
def test_a_line_of_ours_that_is_wrong_names_its_number_and_what_is_wrong(line: str, named: str) -> None:
    with pytest.raises(BadLine) as refused:
        heard("first", line)
    assert str(refused.value).startswith("line 2 of stdout")
    assert named in str(refused.value)


def test_lines_may_come_in_any_pieces_and_the_last_without_its_end() -> None:
    ear = Ear()
    lines = Lines(ear)
    for piece in b'tex\xc3\xa9t\n{"fleetsite": "result", "value": 7}':
        lines.feed(bytes([piece]))
    assert ear.said == ["texét\n"]
    lines.close()
    lines.close()
    assert lines.result.value == 7
    assert len(ear.said) == 1


def test_a_line_without_end_is_output_or_refused_when_it_may_be_ours() -> None:
    ear = Ear()
    Lines(ear).feed(b"x" * (MAX_LINE_BYTES + 1))
    assert len(ear.said[0]) == MAX_LINE_BYTES + 1
    with pytest.raises(BadLine, match="line 1 of stdout has more than"):
        Lines(ear).feed(b'{"fleetsite": "' + b"x" * MAX_LINE_BYTES)
