"""The trace of a turn, from its dispatch through its run to its settlement. What is here tells nobody.

`dispatch.telemetry` tells a collector; it is loaded where AGENT_TRACING says so. Contexts are W3C traceparents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from dispatch.ports import Lease, Settled

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def traceparent_from(text: str | None) -> str | None:
    """A caller's traceparent; None when there is none, or one that breaks the W3C's rules and so is no one's."""
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None


class RunSpan(Protocol):
    """One run in a trace. `traceparent` is the context that its agent hands on; None: there is none."""

    traceparent: str | None

    def failed(self, kind: str) -> None:
        """The agent raised; `kind` is the name of the exception's type."""
        ...


class Tracer(Protocol):
    """Whoever is told how turns go from process to process. Facts are ids and names, never what a turn is about."""

    def dispatching(self, parent: str | None, facts: Mapping[str, str | int]) -> AbstractContextManager[str | None]:
        """Around an admission; answers the context that the admitted turns carry, or None."""
        ...

    def running(self, lease: Lease) -> AbstractContextManager[RunSpan]: ...
    def settled(self, settled: Settled, lease: Lease, *, parent: str | None, since_ns: int) -> None:
        """The turn's end is committed, by a step that began at `since_ns`; `parent` is the run's context."""
        ...

    def close(self) -> None: ...


class NoSpan:
    """A run that nobody is told of; its context is that of who dispatched it."""

    def __init__(self, traceparent: str | None) -> None:
        self.traceparent = traceparent

    def failed(self, kind: str) -> None:
        """Nothing to tell."""


class NoTraces:
    """The tracer of a process that keeps no traces."""

    def dispatching(self, parent: str | None, facts: Mapping[str, str | int]) -> AbstractContextManager[str | None]:
        return nullcontext()

    def running(self, lease: Lease) -> AbstractContextManager[RunSpan]:
        return nullcontext(NoSpan(lease.traceparent))

    def settled(self, settled: Settled, lease: Lease, *, parent: str | None, since_ns: int) -> None:
        """Nothing to tell."""

    def close(self) -> None:
        """Nothing is kept back."""


NO_TRACES = NoTraces()
