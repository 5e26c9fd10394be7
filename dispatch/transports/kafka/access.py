"""Why a broker turns a client away: asked by a client of its own, which listens to what it is told."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from dispatch.errors import TaskQueueUnavailable
from dispatch.transports.kafka.client import TOPIC, KafkaSettings, refused_option

ASK_S = 3.0


def refused_access(settings: KafkaSettings) -> TaskQueueUnavailable | None:
    """None when it is not a matter of who we are, or of whom we trust. The client's own words may quote a secret."""
    if not settings.options:
        return None
    told: set[int] = set()
    options = {**settings.silent(), "error_cb": lambda error: told.add(error.code())}
    try:
        client = AdminClient(options)
    except KafkaException as error:
        return refused_option(error)
    with suppress(KafkaException):
        client.list_topics(TOPIC, timeout=ASK_S)
    client.poll(0)  # serves the callback
    servers = ",".join(settings.servers)
    if KafkaError._AUTHENTICATION in told:
        return TaskQueueUnavailable(
            f"KAFKA_SASL_*: the broker at {servers} does not take this user with this password and mechanism"
        )
    if KafkaError._SSL in told:
        return TaskQueueUnavailable(
            f"KAFKA_SSL_*: no TLS with {servers}: KAFKA_SSL_CA_LOCATION must hold the authority of its certificate"
        )
    return None
