"""Inputs of actions, queries and steering bodies."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict
from pydantic import BaseModel

from dispatch.api import inputs
from dispatch.errors import Invalid
from dispatch.inputs import read_input

JOB = "orch-" + "1" * 32


def fields_of(model: type[BaseModel], body: dict[str, Any]) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read_input(model, body)
    return list(caught.value.fields)


@pytest.mark.parametrize(
    ("model", "body", "field"),
    [
        (inputs.StatusAction, {}, "job_id"),
        (inputs.StatusAction, {"job_id": 5}, "job_id"),
        (inputs.StatusAction, {"job_id": JOB, "oops": 1}, "oops"),
        (inputs.WaitAction, {"job_id": JOB, "timeout_s": 56}, "timeout_s"),
        (inputs.WaitAction, {"job_id": JOB, "timeout_s": -1}, "timeout_s"),
        (inputs.WaitAction, {"job_id": JOB, "timeout_s": "1"}, "timeout_s"),
        (inputs.WaitAction, {"job_id": JOB, "timeout_s": True}, "timeout_s"),
        (inputs.CancelAction, {"job_id": JOB, "reason": 1}, "reason"),
        (inputs.CancelAction, {"job_id": JOB, "reason": "x" * 501}, "reason"),
        (inputs.RetryAction, {"job_id": JOB, "deadline_s": "x"}, "deadline_s"),
        (inputs.ListAction, {"limit": "many"}, "limit"),
        (inputs.ListAction, {"limit": 0}, "limit"),
        (inputs.ListAction, {"limit": 501}, "limit"),
        (inputs.ListAction, {"limitt": 5}, "limitt"),
        (inputs.ListAction, {"status": "sleepy"}, "status"),
        (inputs.ListAction, {"cursor": 1}, "cursor"),
        (inputs.DispatchManyAction, {"jobs": {}}, "jobs"),
        (inputs.DispatchManyAction, {"jobs": [{"task": "x"}] * 1001}, "jobs"),
        (inputs.DispatchManyAction, {"jobs": [], "atomic": True}, "atomic"),
        (inputs.DispatchManyAction, {}, "jobs"),
    ],
)
def test_a_wrong_field_of_an_action_is_named(model: type[BaseModel], body: dict[str, Any], field: str) -> None:
    action = model.model_json_schema()["properties"]["action"]["const"]
    assert fields_of(model, {"action": action, **body}) == [field]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=many", "limit"),
        ("limit=501", "limit"),
        ("limit=-1", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("limit=1&limit=2", "limit"),
        ("oops=1", "oops"),
        ("status=sleepy", "status"),
        ("session_id=%00", "session_id"),
        ("session_id=", "session_id"),
    ],
)
def test_a_wrong_query_parameter_is_named(query: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        inputs.read_query(inputs.JobListQuery, QueryDict(query))
    assert list(caught.value.fields) == [field]


def test_a_query_is_read() -> None:
    query = inputs.read_query(inputs.JobListQuery, QueryDict("limit=5&status=failed&cursor=abc"))
    assert (query.limit, query.status, query.cursor, query.kind) == (5, "failed", "abc", None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"session_ids": ["a"]}, "reason"),
        ({"session_ids": ["a"], "reason": ""}, "reason"),
        ({"reason": "x"}, "session_ids"),
        ({"session_ids": ["a"], "domain": "d", "reason": "x"}, "session_ids"),
        ({"session_ids": [], "reason": "x"}, "session_ids"),
        ({"session_ids": ["a"] * 10_001, "reason": "x"}, "session_ids"),
        ({"session_ids": ["a", 1], "reason": "x"}, "session_ids"),
        ({"session_ids": "a", "reason": "x"}, "session_ids"),
        ({"session_ids": ["a"], "reason": "x", "oops": 1}, "oops"),
        ({"filter": {}, "reason": "x"}, "filter"),
        ({"filter": {"oops": 1}, "reason": "x"}, "filter.oops"),
        ({"filter": {"status": "sleepy"}, "reason": "x"}, "filter.status"),
        ({"filter": [], "reason": "x"}, "filter"),
        ({"domain": 1, "reason": "x"}, "domain"),
    ],
)
def test_a_wrong_steering_body_is_named(body: dict[str, Any], field: str) -> None:
    assert fields_of(inputs.SteerBody, body) == [field]


def test_a_filter_keeps_only_the_conditions_given() -> None:
    sent = read_input(inputs.SteerBody, {"filter": {"status": "failed"}, "reason": "x"})
    assert sent.filter is not None
    assert sent.filter.conditions() == {"status": "failed"}


@pytest.mark.parametrize("body", [{}, {"text": "a", "choice": "b"}, {"text": ""}, {"text": None}, {"text": 1}])
def test_a_reply_is_one_text_or_one_choice(body: dict[str, Any]) -> None:
    assert fields_of(inputs.ReplyBody, body) == ["text"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "session_id"),
        ({"session_id": "a b"}, "session_id"),
        ({"session_id": "a", "metadata": {"team": 1}}, "metadata"),
        ({"session_id": "a", "state": []}, "state"),
        ({"session_id": "a", "state": {"v": "x" * 256 * 1024}}, "state"),
        ({"session_id": "a", "tenant": "t"}, "tenant"),
    ],
)
def test_a_wrong_session_is_named(body: dict[str, Any], field: str) -> None:
    assert fields_of(inputs.SessionBody, body) == [field]
