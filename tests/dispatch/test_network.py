"""When a silent Postgres is taken for silent, and who tries it again."""

from __future__ import annotations

import pytest

from dispatch.network import Silence, StoreSilent


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    monkeypatch.setattr("dispatch.network.time.monotonic", lambda: clock[0])
    clock[0] = 100.0
    made = Silence()
    made.answers_callers()
    return made


clock = [100.0]


def test_a_process_that_answers_nobody_has_no_limit_and_refuses_nothing() -> None:
    made = Silence()
    made.noted()
    made.refuse()
    assert made.limit_s is None


def test_after_a_wait_in_vain_everybody_is_refused_but_one_after_each_pause(silence: Silence) -> None:
    silence.noted()
    assert silence.limit_s == Silence.AGAIN_S
    with pytest.raises(StoreSilent):
        silence.refuse()
    clock[0] += Silence.PAUSE_S
    silence.refuse()
    with pytest.raises(StoreSilent):
        silence.refuse()  # another tries at this moment
    clock[0] += Silence.STATEMENT_S + Silence.PAUSE_S
    silence.refuse()  # who tried has not come back


def test_an_answer_to_anybody_ends_it(silence: Silence) -> None:
    silence.noted()
    silence.heard()
    silence.refuse()
    assert silence.limit_s == Silence.STATEMENT_S


def test_a_pool_that_is_only_busy_is_no_silence(silence: Silence) -> None:
    silence.heard()
    clock[0] += 9
    silence.noted(unheard_s=10)
    silence.refuse()
    clock[0] += 1
    silence.noted(unheard_s=10)
    with pytest.raises(StoreSilent):
        silence.refuse()
