"""What may be dispatched, and what the refusal of the rest names."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import Invalid
from dispatch.specs import DispatchBody, DispatchSpec, fingerprint, read_time

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ONE, TWO = "orch-" + "1" * 32, "goal-" + "2" * 32


def refused(**body: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        DispatchSpec.parse({"task": "x", **body}, now=NOW)
    assert caught.value.fields
    assert next(iter(caught.value.fields)) in caught.value.message
    return caught.value.fields


def test_a_task_alone_gets_the_defaults() -> None:
    spec = DispatchSpec.parse({"task": "hello", "dependencies": "[]"})
    assert (spec.kind, spec.priority, spec.on_busy, spec.agent_name) == ("orchestrator_task", "normal", "enqueue", "")
    assert spec.dependencies == []
    assert spec.session_id is None
    assert spec.deadline is None
    assert spec.fingerprint == {}, "without a key no two bodies are ever compared"


def test_every_field_comes_through() -> None:
    body = {
        "task": "hello",
        "kind": "goal_loop",
        "agent_name": "team/x".replace("/", ":"),
        "session_id": "s-1@home",
        "payload": {"a": [1, {"b": None}]},
        "dependencies": json.dumps([ONE, TWO]),
        "priority": "high",
        "run_at": "2030-01-01T02:00:00.5+02:00",
        "max_attempts": 7,
        "on_worker_lost": "fail",
        "idempotency_key": "k 1",
        "metadata": {"domain": "north", "team": "t", "labels": {"a": "b"}, "more": 1},
        "on_busy": "coalesce",
        "objective": "tidy",
        "validation": {"command": ["true"]},
        "max_iterations": 3,
        "constraints": ["be kind"],
        "deadline_s": 60,
    }
    spec = DispatchSpec.parse(body, now=NOW)
    assert spec.dependencies == [ONE, TWO]
    assert spec.run_at == datetime(2030, 1, 1, 0, 0, 0, 500_000, UTC)
    assert spec.deadline == NOW + timedelta(seconds=60)
    for name in set(body) - {"dependencies", "run_at", "deadline_s"}:
        assert getattr(spec, name) == body[name]
    assert set(spec.fingerprint) == set(body) - {"idempotency_key"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task", 7),
        ("task", ["x"]),
        ("task", ""),
        ("task", " \n"),
        ("task", "x" * (256 * 1024 + 1)),
        ("task", "é" * (128 * 1024 + 1)),
        ("task", None),
        ("agent_name", 7),
        ("agent_name", "a b"),
        ("agent_name", "a" * 201),
        ("session_id", {}),
        ("session_id", ""),
        ("session_id", "a\n"),
        ("payload", [1]),
        ("payload", "x"),
        ("payload", {"big": "x" * 1024 * 1024}),
        ("dependencies", {}),
        ("dependencies", "[oops"),
        ("dependencies", ""),
        ("dependencies", "{}"),
        ("dependencies", "[" * 20_000 + "]" * 20_000),
        ("dependencies", [1]),
        ("dependencies", ["orch-1"]),
        ("dependencies", [ONE, ONE]),
        ("dependencies", [ONE + "\n"]),
        ("dependencies", [f"orch-{n:032x}" for n in range(101)]),
        ("priority", "urgent"),
        ("priority", 1),
        ("kind", "cron"),
        ("run_at", "next tuesday-ish"),
        ("run_at", "2030-01-01T00:00:00"),
        ("run_at", "2030-01-01"),
        ("run_at", "2030-02-31T00:00:00Z"),
        ("run_at", "0001-01-01T00:00:00+14:00"),
        ("run_at", "9999-12-31T23:59:59-14:00"),
        ("run_at", 1_900_000_000),
        ("deadline_s", "soon"),
        ("deadline_s", -5),
        ("deadline_s", 0),
        ("deadline_s", True),
        ("deadline_s", float("nan")),
        ("deadline_s", 10**400),
        ("deadline_s", 1e300),
        ("deadline_unix", "soon"),
        ("deadline_unix", 1_700_000_000),
        ("deadline_unix", False),
        ("deadline_unix", 1e18),
        ("max_attempts", "many"),
        ("max_attempts", -1),
        ("max_attempts", 0),
        ("max_attempts", 101),
        ("max_attempts", True),
        ("max_attempts", 1.5),
        ("on_worker_lost", "shrug"),
        ("idempotency_key", ["k"]),
        ("idempotency_key", ""),
        ("idempotency_key", "a\tb"),
        ("idempotency_key", "k" * 201),
        ("metadata", "x"),
        ("metadata", {"domain": 1}),
        ("metadata", {"domain": "two words"}),
        ("metadata", {"team": None}),
        ("metadata", {"labels": {"a": 1}}),
        ("metadata", {"labels": []}),
        ("metadata", {"big": "x" * 64 * 1024}),
        ("on_busy", "panic"),
        ("objective", ""),
        ("validation", {"command": []}),
        ("validation", {"command": "true"}),
        ("validation", {"check": "a", "schema": {}}),
        ("validation", {}),
        ("max_iterations", 0),
        ("constraints", "none"),
        ("tenant", "t1"),
        ("pirority", "high"),
        ("action", "dispatch"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    assert list(refused(**{"kind": "goal_loop", field: value})) == [field]


def test_every_wrong_field_is_named_at_once() -> None:
    fields = refused(task=7, priority="urgent", oops=1)
    assert set(fields) == {"task", "priority", "oops"}


def test_a_sentence_says_what_would_be_right() -> None:
    assert refused(priority="urgent")["priority"] == "must be critical, high, normal or low"
    assert refused(pirority="high")["pirority"] == "is no field here (did you mean priority?)"


def test_a_missing_task_is_named() -> None:
    with pytest.raises(Invalid) as caught:
        DispatchSpec.parse({})
    assert set(caught.value.fields) == {"task"}


@pytest.mark.parametrize("body", [7, "x", None, [], [1]])
def test_what_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(Invalid):
        DispatchSpec.parse(body)


def test_two_deadlines_are_refused() -> None:
    assert "deadline_s" in refused(deadline_s=5, deadline_unix=NOW.timestamp() + 5)


def test_a_deadline_of_this_very_moment_is_in_the_past() -> None:
    assert refused(deadline_unix=NOW.timestamp()) == {"deadline_unix": "is in the past"}


def test_goal_fields_need_the_goal_kind() -> None:
    assert set(refused(objective="x", max_iterations=1)) == {"objective", "max_iterations"}


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "\udfff"])
def test_unclean_text_is_refused_where_it_stands(text: str) -> None:
    assert list(refused(task=text)) == ["task"]
    assert list(refused(payload={"a": [0, {"b": text}]})) == ["payload.a.1.b"]
    assert list(refused(metadata={"domain": text})) == ["metadata.domain"]
    assert list(refused(payload={"a": {text: 1}})) == ["payload.a"]
    assert list(refused(**{text: 1})) == ["body"]


def test_numbers_that_are_not_finite_are_refused_where_they_stand() -> None:
    assert list(refused(payload={"v": [float("inf")]})) == ["payload.v.0"]


def test_nesting_is_bounded() -> None:
    def nest(levels: int) -> Any:
        value: Any = {}
        for _ in range(levels):
            value = {"v": value}
        return value

    DispatchSpec.parse({"task": "x", "payload": nest(62)})
    assert list(refused(payload=nest(63))) == ["payload"]
    assert list(refused(payload=nest(50_000))) == ["payload"]


def test_the_fingerprint_tells_bodies_apart_field_by_field() -> None:
    one = fingerprint({"task": "a", "payload": {"x": 1, "y": 2}, "idempotency_key": "k"})
    same = fingerprint({"payload": {"y": 2, "x": 1}, "task": "a", "idempotency_key": "other"})
    other = fingerprint({"task": "b", "payload": {"x": 1, "y": 2}})
    assert one == same
    assert {name for name in one if one[name] != other[name]} == {"task"}
    assert all(len(digest) == 16 for digest in one.values())


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_is_refused(text: str) -> None:
    try:
        moment = read_time(text)
    except ValueError:
        return
    assert moment.tzinfo is UTC


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.dictionaries(st.sampled_from(sorted(DispatchBody.model_fields)), VALUES))
def test_any_json_object_is_read_or_refused(body: dict[str, Any]) -> None:
    try:
        spec = DispatchSpec.parse(body)
    except Invalid:
        return
    assert spec.task == body["task"]
