"""Follows one job in the store: what its runs say, and what happens to it, until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from dispatch import selectors
from dispatch.access import Caller
from dispatch.api.stream import FIRST_POLL_S, LAST_POLL_S
from dispatch.connections import release_connections
from dispatch.states import TERMINAL


@dataclass(kw_only=True)
class JobTail:
    """Hands each chunk and each event of the timeline to `tell`, once, in the order of their times.

    Told: {"at", "event", "data"}; the event is `text`, `progress` or `timeline`, and the data of the last is an entry
    of the job's events. A job that ended before is told whole. No database connection is held between two looks.
    """

    caller: Caller
    job_id: str
    tell: Callable[[Mapping[str, Any]], None]
    sleep: Callable[[float], None] = time.sleep
    ends: Callable[[str], bool] = TERMINAL.__contains__  # the status with which there is nothing more to follow
    clock: Callable[[], float] = time.monotonic
    _after: int = field(default=0, init=False)
    _events: int = field(default=0, init=False)

    def follow(self, *, within: float | None = None) -> str:
        """Tell until the job has ended; answers how, or where it stands after `within` seconds.

        Raises JobNotFound, also when it goes away meanwhile.
        """
        pause, end = FIRST_POLL_S, None if within is None else self.clock() + within
        while True:
            status, news = self._look()
            for told in news:
                self.tell(told)
            left = LAST_POLL_S if end is None else end - self.clock()
            if (not news and self.ends(status)) or left <= 0:
                return status
            if news:
                pause = FIRST_POLL_S
                continue
            release_connections()
            self.sleep(min(pause, left))
            pause = min(pause * 1.5, LAST_POLL_S)

    def skip(self) -> None:
        """Leave out what is there already."""
        while self._look()[1]:
            pass

    def _look(self) -> tuple[str, list[dict[str, Any]]]:
        # the status before the rest: what is told of a job seen as ended is all there is, once a look brings no more
        status = str(selectors.job_status(caller=self.caller, job_id=self.job_id)["status"])
        chunks = selectors.job_chunks(caller=self.caller, job_id=self.job_id, after=self._after)
        events = selectors.job_events(caller=self.caller, job_id=self.job_id)["events"][self._events :]
        self._after = chunks[-1]["id"] if chunks else self._after
        self._events += len(events)
        news = [{"at": chunk["at"], "event": chunk["kind"], "data": chunk["data"]} for chunk in chunks]
        news += [{"at": event["at"], "event": "timeline", "data": event} for event in events]
        return status, sorted(news, key=itemgetter("at"))
