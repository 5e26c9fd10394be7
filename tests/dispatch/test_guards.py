"""One holder of a section at a time, among real processes, on either store."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from django.db import OperationalError, connection, transaction

from dispatch.clock import store_now
from dispatch.errors import GuardBusy, Invalid
from dispatch.guards import state_claim_guard
from dispatch.network import silence
from sessions_app.models import Session
from tests.support.processes import Proc, until

pytestmark = [pytest.mark.store, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]
PROCESSES, ROUNDS = 4, 25

OPEN = """
import sys, time
import django; django.setup()
from django.db import connection
connection.settings_dict["NAME"] = sys.argv[1]
from dispatch.guards import state_claim_guard
from sessions_app.models import Session
"""
# reads, waits for nobody, writes what it read plus one: two at once would lose a count
COUNT = f"""{OPEN}
for _ in range({ROUNDS}):
    with state_claim_guard("count", wait_s=60):
        session = Session.objects.get(session_id="counted")
        time.sleep(0.001)
        Session.objects.filter(pk=session.pk).update(state={{"n": session.state["n"] + 1}})
"""
HOLD = f"""{OPEN}
with state_claim_guard("held"):
    print("holding", flush=True)
    time.sleep(600)
"""


def process(code: str, place: Path, name: str) -> Proc:
    argv = [sys.executable, "-c", code, str(connection.settings_dict["NAME"])]
    return Proc(name, argv, log=place / f"{name}.log", env=dict(os.environ), cwd=ROOT)


def a_session(**state: int) -> Session:
    now = store_now()
    return Session.objects.create(tenant="t", session_id="counted", state=state, created_at=now, updated_at=now)


@pytest.mark.process
def test_what_one_holder_wrote_the_next_one_reads(tmp_path: Path) -> None:
    a_session(n=0)
    counters = [process(COUNT, tmp_path, f"counter-{number}") for number in range(PROCESSES)]
    for counter in counters:
        assert counter.wait(100) == 0, counter.tail()
    assert Session.objects.get(session_id="counted").state == {"n": PROCESSES * ROUNDS}


@pytest.mark.process
def test_a_section_that_is_held_is_refused_after_the_wait_and_free_when_its_holder_is_killed(tmp_path: Path) -> None:
    with process(HOLD, tmp_path, "holder") as holder:
        holder.wait_for_text("holding", 20)
        with pytest.raises(GuardBusy, match=r"held was not free within 0\.2 s"), state_claim_guard("held", wait_s=0.2):
            pytest.fail("two are in one section")
        holder.signal(signal.SIGKILL)
        holder.wait(10)

    def enter() -> bool:
        with state_claim_guard("held", wait_s=1):
            return True

    assert until(enter, 10, "the section is free")


@pytest.mark.process
@pytest.mark.skipif(connection.vendor != "postgresql", reason="about a silent Postgres")
def test_who_waits_for_a_section_does_not_take_postgres_for_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "STATEMENT_S", 0.5)
    monkeypatch.setattr(silence, "_limited", True)
    with process(HOLD, tmp_path, "holder") as holder:
        holder.wait_for_text("holding", 20)
        with pytest.raises(GuardBusy), state_claim_guard("held", wait_s=1.5):
            pytest.fail("two are in one section")
        with connection.cursor() as cursor, pytest.raises(OperationalError, match=r"gave no answer in 0\.5 s"):
            cursor.execute("SELECT pg_sleep(2)")
    connection.close()
    silence.heard()


def test_what_the_block_wrote_is_rolled_back_when_it_raises() -> None:
    a_session(n=1)

    def write_and_fail() -> None:
        with state_claim_guard("x"):
            Session.objects.filter(session_id="counted").update(state={"n": 2})
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    assert Session.objects.get(session_id="counted").state == {"n": 1}


def test_inside_a_callers_transaction_the_limit_of_other_locks_is_as_before() -> None:
    with transaction.atomic():
        with state_claim_guard("x", wait_s=0.5), state_claim_guard("y"):
            pass
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SHOW lock_timeout")
                assert cursor.fetchone() == ("0",)


def test_a_section_has_a_name() -> None:
    with pytest.raises(Invalid), state_claim_guard(""):
        pytest.fail("entered")
