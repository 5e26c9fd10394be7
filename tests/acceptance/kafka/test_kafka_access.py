"""Workers that come to the broker by TLS, with a name and a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.kafka.conftest import SECRET, USER
from tests.support.api import Api
from tests.support.certificates import Certificates
from tests.support.fleet import Fleet, new_session
from tests.support.journal import assert_sessions_in_order
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.process, pytest.mark.kafka]
WRONG = "a-wrong-word"


@pytest.fixture(params=["PLAIN", "SCRAM-SHA-512"])
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def access(broker: KafkaBroker, ca: Path, mechanism: str) -> dict[str, object]:
    return {
        "KAFKA_BOOTSTRAP_SERVERS": broker.secured,
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": mechanism,
        "KAFKA_SASL_USERNAME": USER,
        "KAFKA_SSL_CA_LOCATION": ca,
    }


def test_a_worker_with_name_password_and_authority_does_the_turns(
    fleet: Fleet, api: Api, broker: KafkaBroker, certificates: Certificates, tmp_path: Path, mechanism: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    env = {**access(broker, certificates.ca, mechanism), "KAFKA_SASL_PASSWORD_FILE": secret}
    worker = fleet.worker(1, env=env)
    session = new_session()
    jobs = api.finish([api.dispatch("note", session) for _ in range(4)], 30)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert_sessions_in_order(fleet.journal, jobs.values())
    assert SECRET not in worker.text()


def test_a_wrong_password_and_an_unknown_authority_end_the_worker_with_exit_2(
    fleet: Fleet, broker: KafkaBroker, certificates: Certificates, tmp_path: Path, mechanism: str
) -> None:
    stranger = Certificates.make(tmp_path / "stranger")
    wrong = fleet.launch(1, env={**access(broker, certificates.ca, mechanism), "KAFKA_SASL_PASSWORD": WRONG})
    untrusting = fleet.launch(1, env={**access(broker, stranger.ca, mechanism), "KAFKA_SASL_PASSWORD": SECRET})
    assert (wrong.wait(60), untrusting.wait(60)) == (2, 2)
    at = f"at {broker.secured}"
    assert f"KAFKA_SASL_*: the broker {at} does not take this user with this password" in wrong.text()
    assert "KAFKA_SSL_CA_LOCATION must hold the authority of its certificate" in untrusting.text()
    assert WRONG not in wrong.text()
    assert SECRET not in untrusting.text()


def test_a_mechanism_that_the_broker_does_not_offer_ends_the_worker_with_exit_2(
    fleet: Fleet, broker: KafkaBroker, certificates: Certificates
) -> None:
    env = {**access(broker, certificates.ca, "SCRAM-SHA-256"), "KAFKA_SASL_PASSWORD": SECRET}
    worker = fleet.launch(1, env=env)
    assert worker.wait(60) == 2
    assert "KAFKA_SASL_*" in worker.text()
    assert SECRET not in worker.text()
