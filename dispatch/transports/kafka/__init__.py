"""Turns by Apache Kafka: envelopes in a topic, rows in the state store's queue. Nothing else imports its client."""

from dispatch.transports.kafka.client import KafkaSettings
from dispatch.transports.kafka.transport import KafkaTransport

__all__ = ["KafkaSettings", "KafkaTransport"]
