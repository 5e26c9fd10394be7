"""A fleet whose queue is Kafka, with a broker of its own: these tests stop and restart it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.certificates import Certificates
from tests.support.fleet import Fleet, Template
from tests.support.kafka import Access, KafkaBroker, NoKafka
from tests.support.parts import missing

USER, SECRET = "fleet", "a-word-that-nobody-logs"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def broker(certificates: Certificates) -> Iterator[KafkaBroker]:
    try:
        made = KafkaBroker(Access(keys=certificates.server, user=USER, password=SECRET))
    except NoKafka as refusal:
        missing(str(refusal))
    with made:
        yield made


@pytest.fixture(scope="module")
def installation(broker: KafkaBroker, template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    place = tmp_path_factory.mktemp("fleet") / "f"
    chosen: dict[str, Any] = {
        "TASK_QUEUE_BACKEND": "kafka",
        "KAFKA_BOOTSTRAP_SERVERS": broker.servers,
        "KAFKA_SESSION_TIMEOUT_S": 3,
        "KAFKA_MAX_POLL_INTERVAL_S": 6,
        "KAFKA_PUBLISH_TIMEOUT_S": 2,
        "AGENT_TURNS_PARTITIONS": 2,
    }
    with Fleet(place, template, **chosen) as fleet:
        yield fleet
