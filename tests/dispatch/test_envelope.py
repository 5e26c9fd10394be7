"""The wire message: exactly these fields, references only, at most 4 KiB."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dispatch.envelope import MAX_BYTES, AgentTurnEnvelope, BadEnvelope, partition_key_for

JOB = "orch-" + "0123456789abcdef" * 2
BODY: dict[str, Any] = {
    "job_id": JOB,
    "session_id": "s-1",
    "kind": "orchestrator_task",
    "payload_ref": JOB,
    "agent_name": "echo",
    "tenant": "t1",
    "priority": "normal",
    "deadline_unix": None,
    "attempt": 0,
    "enqueued_at": 1781234567.89,
}
NAMES = st.text("abcXYZ019._:@-", min_size=1, max_size=200)


def envelope(**changes: Any) -> AgentTurnEnvelope:
    return AgentTurnEnvelope(**{**BODY, **changes})


def test_it_is_encoded_with_exactly_these_fields_in_this_order() -> None:
    assert list(json.loads(envelope().encode()).items()) == list(BODY.items())


def test_what_may_be_left_out_has_the_documented_defaults() -> None:
    least = {name: BODY[name] for name in ("job_id", "session_id", "kind", "payload_ref", "enqueued_at")}
    decoded = AgentTurnEnvelope.decode(json.dumps(least).encode())
    assert (decoded.agent_name, decoded.tenant, decoded.priority) == ("", "", "normal")
    assert (decoded.deadline_unix, decoded.attempt) == (None, 0)


@given(session=NAMES, agent=NAMES, tenant=NAMES, attempt=st.integers(0, 10**9), deadline=st.none() | st.floats(0, 1e11))
def test_every_envelope_comes_back_as_it_was_and_fits(
    session: str, agent: str, tenant: str, attempt: int, deadline: float | None
) -> None:
    made = envelope(session_id=session, agent_name=agent, tenant=tenant, attempt=attempt, deadline_unix=deadline)
    raw = made.encode()
    assert len(raw) <= MAX_BYTES
    assert AgentTurnEnvelope.decode(raw) == made


WRONG: dict[str, dict[str, Any]] = {
    "an extra field": {"task": "a body has no place here"},
    "a job id that is none": {"job_id": "orch-1"},
    "a job id in capitals": {"job_id": "orch-" + "A" * 32},
    "a payload that is no reference": {"payload_ref": {"task": "x"}},
    "another kind": {"kind": "shell"},
    "a session name with a space": {"session_id": "a b"},
    "a session name with a line feed": {"session_id": "a\n"},
    "a job id with a line feed": {"job_id": JOB + "\n"},
    "a session name that is too long": {"session_id": "s" * 201},
    "a tenant that is no text": {"tenant": 7},
    "another priority": {"priority": "urgent"},
    "an attempt below nought": {"attempt": -1},
    "an attempt in words": {"attempt": "1"},
    "a deadline that is no time": {"deadline_unix": 1e300},
    "no number as time": {"enqueued_at": "now"},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_anything_else_is_no_envelope(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        envelope(**change)
    with pytest.raises(BadEnvelope) as refusal:
        AgentTurnEnvelope.decode(json.dumps({**BODY, **change}).encode())
    assert not any(str(value) in refusal.value.message for value in change.values() if len(str(value)) > 3)


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{", b"\xff\xfe", b"\x00" * 10, b"NaN", b"{}"])
def test_noise_is_no_envelope(raw: bytes) -> None:
    with pytest.raises(BadEnvelope):
        AgentTurnEnvelope.decode(raw)


def test_a_message_over_the_limit_is_not_even_read() -> None:
    exact = envelope().encode()
    padded = exact[:-1] + b" " * (MAX_BYTES - len(exact)) + b"}"
    assert len(padded) == MAX_BYTES
    assert AgentTurnEnvelope.decode(padded) == envelope()
    with pytest.raises(BadEnvelope):
        AgentTurnEnvelope.decode(padded[:-1] + b" }")


@given(tenant=NAMES, other=NAMES, session=NAMES)
def test_a_partition_key_is_that_of_the_session_and_tells_nothing_of_its_name(
    tenant: str, other: str, session: str
) -> None:
    key = partition_key_for(envelope(session_id=session, tenant=tenant))
    assert key.startswith("session:")
    assert key == partition_key_for(envelope(session_id=session, tenant=tenant, agent_name="other", attempt=5))
    assert len(key) == len("session:") + 32
    assert set(key.removeprefix("session:")) <= set("0123456789abcdef")
    assert (key == partition_key_for(envelope(session_id=session, tenant=other))) == (tenant == other)


def test_without_a_session_the_tenant_decides_and_then_the_job() -> None:
    key = partition_key_for(envelope(session_id=""))
    assert key.startswith("tenant:")
    assert "t1" not in key.removeprefix("tenant:")
    assert partition_key_for(envelope(session_id="", tenant="")) == JOB


def test_two_names_that_read_alike_when_joined_are_two_keys() -> None:
    assert partition_key_for(envelope(tenant="a", session_id="b:c")) != partition_key_for(
        envelope(tenant="a:b", session_id="c")
    )
