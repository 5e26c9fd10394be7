"""Workers that come to the broker with a name and a password, by TLS and without."""

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


def access(broker: KafkaBroker, ca: Path, mechanism: str) -> dict[str, object]:
    return {
        "KAFKA_BOOTSTRAP_SERVERS": broker.secured,
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": mechanism,
        "KAFKA_SASL_USERNAME": USER,
        "KAFKA_SSL_CA_LOCATION": ca,
    }


def open_access(broker: KafkaBroker, mechanism: str) -> dict[str, object]:
    return {
        "KAFKA_BOOTSTRAP_SERVERS": broker.open,
        "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_SASL_MECHANISM": mechanism,
        "KAFKA_SASL_USERNAME": USER,
    }


@pytest.fixture(
    params=["SASL_SSL PLAIN", "SASL_SSL SCRAM-SHA-512", "SASL_PLAINTEXT SCRAM-SHA-256", "SASL_PLAINTEXT SCRAM-SHA-512"]
)
def way(request: pytest.FixtureRequest, broker: KafkaBroker, certificates: Certificates) -> dict[str, object]:
    """The settings of one way in, but for the password."""
    protocol, mechanism = str(request.param).split()
    return access(broker, certificates.ca, mechanism) if protocol == "SASL_SSL" else open_access(broker, mechanism)


def test_a_worker_with_name_and_password_does_the_turns(
    fleet: Fleet, api: Api, way: dict[str, object], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    worker = fleet.worker(1, env={**way, "KAFKA_SASL_PASSWORD_FILE": secret})
    session = new_session()
    jobs = api.finish([api.dispatch("note", session) for _ in range(4)], 30)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert_sessions_in_order(fleet.journal, jobs.values())
    assert SECRET not in worker.text()


def test_a_wrong_password_ends_the_worker_with_exit_2(fleet: Fleet, way: dict[str, object]) -> None:
    worker = fleet.launch(1, env={**way, "KAFKA_SASL_PASSWORD": WRONG})
    assert worker.wait(60) == 2
    at = f"at {way['KAFKA_BOOTSTRAP_SERVERS']}"
    assert f"KAFKA_SASL_*: the broker {at} does not take this user with this password" in worker.text()
    assert WRONG not in worker.text()


def test_an_unknown_authority_ends_the_worker_with_exit_2(fleet: Fleet, broker: KafkaBroker, tmp_path: Path) -> None:
    stranger = Certificates.make(tmp_path / "stranger")
    worker = fleet.launch(1, env={**access(broker, stranger.ca, "PLAIN"), "KAFKA_SASL_PASSWORD": SECRET})
    assert worker.wait(60) == 2
    assert "KAFKA_SSL_CA_LOCATION must hold the authority of its certificate" in worker.text()
    assert SECRET not in worker.text()


def test_a_mechanism_that_the_broker_does_not_offer_ends_the_worker_with_exit_2(
    fleet: Fleet, broker: KafkaBroker, certificates: Certificates
) -> None:
    env = {**access(broker, certificates.ca, "SCRAM-SHA-256"), "KAFKA_SASL_PASSWORD": SECRET}
    worker = fleet.launch(1, env=env)
    assert worker.wait(60) == 2
    assert "KAFKA_SASL_*" in worker.text()
    assert SECRET not in worker.text()
