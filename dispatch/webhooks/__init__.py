"""Callbacks about jobs: an outbox that is written with them, and senders that empty it."""
