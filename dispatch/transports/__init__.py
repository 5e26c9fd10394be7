"""Transports move references between the state store and the workers; all of them pass one conformance suite."""
