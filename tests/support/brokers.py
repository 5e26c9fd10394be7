"""The Kafka broker of this test run: the one that KAFKA_TEST_SERVERS names, else one that is started at first use."""

from __future__ import annotations

import atexit
import os
import threading

from tests.support.kafka import SERVERS, KafkaBroker, NoKafka
from tests.support.parts import missing

_lock = threading.Lock()
_own: list[KafkaBroker] = []


def servers() -> str:
    """Its address. Without Java, or the jars, the test is left out; under CI it fails."""
    if given := os.environ.get(SERVERS):
        return given
    with _lock:
        if not _own:
            try:
                broker = KafkaBroker()
            except NoKafka as refusal:
                missing(str(refusal))
            broker.start()
            atexit.register(broker.remove)
            _own.append(broker)
        return _own[0].servers
