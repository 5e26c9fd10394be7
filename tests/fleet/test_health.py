"""The verdict of fleet.health.v1, as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fleet.health import DEPENDENCIES, Evidence, Fact, verdict

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
READ = NOW - timedelta(seconds=2)


def fact(how: str) -> Fact:
    if how == "failed":
        return Fact(checked_at=NOW, last_success_at=READ, error="OperationalError")
    return Fact(checked_at=NOW, last_success_at=NOW, impairments=("stale_tick:rescue",) if how == "impaired" else ())


def judge(*how: str) -> Evidence:
    return verdict({name: fact(one) for name, one in zip(DEPENDENCIES, how, strict=True)}, now=NOW)


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (("ok", "ok", "ok", "ok"), "healthy"),
        (("ok", "impaired", "ok", "ok"), "degraded"),
        (("impaired", "impaired", "impaired", "impaired"), "degraded"),
        (("failed", "ok", "ok", "ok"), "partial"),
        (("ok", "ok", "ok", "failed"), "partial"),
        (("failed", "failed", "failed", "ok"), "partial"),
        (("ok", "impaired", "ok", "failed"), "partial"),
        (("failed", "failed", "failed", "failed"), "unavailable"),
    ],
)
def test_the_state_follows_from_what_was_read(how: tuple[str, ...], status: str) -> None:
    evidence = judge(*how)
    assert evidence.status == status
    ready = status == "healthy"
    assert (evidence.ready, evidence.autoscaling_ready, evidence.convergence_ready) == (ready, ready, ready)


def test_the_keys_are_exactly_those_of_the_contract() -> None:
    body = judge("ok", "ok", "ok", "ok").model_dump(mode="json")
    assert list(body) == [
        "schema_version",
        "status",
        "ready",
        "autoscaling_ready",
        "convergence_ready",
        "generated_at",
        "last_success_at",
        "freshness_seconds",
        "dependencies",
        "diagnostics",
    ]
    assert body["schema_version"] == "fleet.health.v1"
    assert set(body["dependencies"]) == {"goal_rehydration", "control_store", "worker_registry", "dispatch_queue"}
    for dependency in body["dependencies"].values():
        assert list(dependency) == ["status", "checked_at", "last_success_at", "freshness_seconds", "diagnostics"]
    assert body["generated_at"] == "2026-03-04T05:06:07Z"


def test_a_failed_read_keeps_the_time_of_its_last_success_and_grows_old() -> None:
    evidence = judge("ok", "failed", "ok", "ok")
    assert evidence.dependencies.control_store.status == "unavailable"
    assert evidence.dependencies.control_store.last_success_at == READ
    assert evidence.dependencies.control_store.freshness_seconds == 2.0
    assert (evidence.last_success_at, evidence.freshness_seconds) == (READ, 2.0)


def test_what_was_never_read_has_no_age() -> None:
    facts = {name: Fact(checked_at=NOW, last_success_at=None, error="OSError") for name in DEPENDENCIES}
    evidence = verdict(facts, now=NOW)
    assert (evidence.last_success_at, evidence.freshness_seconds) == (None, None)
    assert evidence.dependencies.dispatch_queue.freshness_seconds is None


def test_a_dependency_without_a_fact_is_never_guessed() -> None:
    with pytest.raises(KeyError):
        verdict({"control_store": fact("ok")}, now=NOW)


def test_diagnostics_are_few_short_and_hold_labels_only() -> None:
    leaky = Fact(
        checked_at=NOW,
        last_success_at=NOW,
        impairments=("postgresql://user:secret@db/x", "two words", "a" * 300, *(f"label_{i}" for i in range(9))),
    )
    evidence = verdict(dict.fromkeys(DEPENDENCIES, leaky), now=NOW)
    every = [*evidence.diagnostics, *(line for _, part in evidence.dependencies for line in part.diagnostics)]
    assert len(evidence.diagnostics) == 4
    assert all(len(part.diagnostics) <= 4 for _, part in evidence.dependencies)
    assert all(len(line) <= 192 for line in every)
    assert not any("secret" in line or "words" in line for line in every)
    assert evidence.diagnostics[0] == "goal_rehydration: unnamed"
