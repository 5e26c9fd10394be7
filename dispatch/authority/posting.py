"""Envelopes of heads that a step has freed: posted without waiting, marked in their rows once they are confirmed."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence

from django.db import DatabaseError

from dispatch.envelope import AgentTurnEnvelope
from dispatch.errors import DispatchError
from dispatch.ports import Envelopes

AT_ONCE = 500

log = logging.getLogger("dispatch.authority")


class Post:
    """What was posted and is confirmed waits here for the next step, which marks it on its way. Safe for threads.

    What the broker never confirms is left to the republish tick; so is a mark that is lost with the process.
    """

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes
        self._confirmed: deque[tuple[int, int]] = deque()  # (item, its epoch when it was posted)

    def send(self, heads: Sequence[tuple[int, int, AgentTurnEnvelope]]) -> None:
        """(item, epoch, envelope) of each. After their commit."""
        keys = {envelope.job_id: (item_id, epoch) for item_id, epoch, envelope in heads}
        if keys:
            self._envelopes.post(
                [envelope for *_, envelope in heads], lambda job_id: self._confirmed.append(keys[job_id])
            )

    def take(self) -> list[tuple[int, int]]:
        """What is to be marked."""
        taken: list[tuple[int, int]] = []
        while self._confirmed and len(taken) < AT_ONCE:
            try:
                taken.append(self._confirmed.popleft())
            except IndexError:  # another loop took the last one
                break
        return taken

    def put_back(self, taken: Sequence[tuple[int, int]]) -> None:
        """Their marks were not committed."""
        self._confirmed.extend(taken)

    def rest(self) -> None:
        """Mark what no step comes by for."""
        mark_sent(self._envelopes, [item_id for item_id, _ in self.take()])


def mark_sent(envelopes: Envelopes, item_ids: Sequence[int]) -> None:
    """Note in their rows that these were sent. Lost in a crash, the mark costs an envelope more."""
    if item_ids:
        try:
            envelopes.published(item_ids, at=time.time())
        except (DispatchError, DatabaseError) as error:
            log.warning("sent turns not marked", extra={"count": len(item_ids), "error": type(error).__name__})
