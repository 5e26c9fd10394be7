"""What a question may say of its reminder, its time limit and its default."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dispatch.agents import NeedsInput
from dispatch.errors import Invalid
from dispatch.ports import AnswerTerms


def test_a_question_without_terms_has_none() -> None:
    assert NeedsInput("?").terms is None


def test_terms_are_seconds_or_timedeltas() -> None:
    asked = NeedsInput("?", ["y", "n"], remind_after_s=timedelta(hours=1), answer_within_s=86_400, default="n")
    assert asked.terms == AnswerTerms(remind_after_s=3600.0, answer_within_s=86_400.0, default="n")
    assert NeedsInput("?", remind_after_s=5).terms == AnswerTerms(remind_after_s=5.0)


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"default": "n"}, "default"),
        ({"answer_within_s": 5}, "default"),
        ({"answer_within_s": 5, "default": ""}, "default"),
        ({"answer_within_s": 5, "default": 7}, "default"),
        ({"answer_within_s": 5, "default": "x" * 5000}, "default"),
        ({"answer_within_s": 5, "default": "maybe", "choices": ["y", "n"]}, "default"),
        ({"answer_within_s": 0, "default": "n"}, "answer_within_s"),
        ({"answer_within_s": float("nan"), "default": "n"}, "answer_within_s"),
        ({"answer_within_s": "soon", "default": "n"}, "answer_within_s"),
        ({"remind_after_s": -1}, "remind_after_s"),
        ({"remind_after_s": 367 * 86_400}, "remind_after_s"),
        ({"remind_after_s": 5, "answer_within_s": 5, "default": "n"}, "remind_after_s"),
    ],
)
def test_wrong_terms_are_refused_by_name(terms: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        NeedsInput("?", **terms)
    assert set(caught.value.fields) == {field}
