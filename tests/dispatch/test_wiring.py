"""The composition root: one authority for each store, and the right transport beside it."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from django.db import connection
from pytest_django import Settings

from dispatch import wiring
from dispatch.agents.registry import BadAgent
from dispatch.errors import QueueUnavailable, StoreUnavailable, TaskQueueUnavailable
from dispatch.preflight import preflight
from dispatch.testing import drain
from dispatch.transports.memory import MemoryTransport
from dispatch.transports.postgres import PostgresTransport
from dispatch.transports.sqlite import SQLiteTransport
from sessions_app.state_file import state_file
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def test_a_store_has_one_authority_in_all_threads() -> None:
    mine, seen = wiring.authority(), []
    threads = [threading.Thread(target=lambda: seen.append(wiring.authority())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert all(authority is mine for authority in seen)
    assert wiring.transport() is mine.transport


def test_the_queue_lies_in_the_store_or_in_a_file_of_its_own_beside_it() -> None:
    transport = wiring.transport()
    if connection.vendor == "postgresql":
        assert isinstance(transport, PostgresTransport)
        return
    assert isinstance(transport, SQLiteTransport)
    path = state_file(connection)
    assert path is not None
    assert transport.path == Path(f"{path}.d") / "queue.db"


def test_a_transport_that_is_not_there_is_refused_and_never_replaced(settings: Settings) -> None:
    world.forget()
    settings.FLEETSITE = settings.FLEETSITE.model_copy(
        update={"task_queue_backend": "kafka", "kafka_bootstrap_servers": ("127.0.0.1:1",)}
    )
    assert wiring.transport().name == "kafka"
    with pytest.raises(TaskQueueUnavailable) as refusal:
        preflight()
    assert "KAFKA_BOOTSTRAP_SERVERS" in refusal.value.message
    with pytest.raises(QueueUnavailable):
        wiring.transport().depth()
    world.forget()


def test_a_worker_serves_what_it_has_of_what_it_was_asked_to() -> None:
    assert "echo" in wiring.serves().agents
    assert wiring.serves(agents=("echo", "nobody-has-this")).agents == ("echo",)
    assert wiring.serves(agents=("nobody-has-this",)).agents == ()
    assert wiring.serves(kinds=("orchestrator_task",)).kinds == ("orchestrator_task",)


def test_a_file_that_gives_a_command_one_of_our_secrets_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "agents.toml"
    file.write_text('[agents.x]\nkind = "command"\nargv = ["true"]\nenv_allow = ["DJANGO_SECRET_KEY"]')
    settings.FLEETSITE = settings.FLEETSITE.model_copy(update={"agents_file": file})
    monkeypatch.setattr(wiring, "_registry", None)
    with pytest.raises(BadAgent, match=r"agents\.x\.env_allow names DJANGO_SECRET_KEY"):
        wiring.registry()


def test_a_memory_queue_stands_in_for_this_thread_alone_and_holds_what_the_state_holds() -> None:
    item, usual = world.add(), wiring.authority()
    elsewhere = []
    with wiring.standing_in() as authority:
        assert wiring.authority() is authority
        assert isinstance(authority.transport, MemoryTransport)
        thread = threading.Thread(target=lambda: elsewhere.append(wiring.authority()))
        thread.start()
        thread.join(20)
        authority.repair()
        assert authority.transport.rows([item.pk]).keys() == {item.pk}
    assert elsewhere == [usual]
    assert wiring.authority() is usual


def test_a_rebuild_of_a_memory_queue_that_is_undone_is_done_again() -> None:
    queue = MemoryTransport()
    with contextlib.suppress(ZeroDivisionError), queue.transaction():
        queue.rebuilt()
        raise ZeroDivisionError
    assert queue.rebuilding


def test_drain_runs_what_is_queued_and_answers_how_many() -> None:
    for n in range(3):
        world.add(f"s{n % 2}")
    assert drain(limit=1) == 1
    assert drain() == 2
    assert drain() == 0
    world.authority().repair()
    world.check()


def test_a_vanished_state_file_is_told_apart_from_an_empty_one() -> None:
    path = state_file(connection)
    if path is None:
        return  # Postgres tells by itself
    wiring.refuse_vanished_store()
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    try:
        with pytest.raises(StoreUnavailable):
            wiring.refuse_vanished_store()
    finally:
        away.rename(path)
