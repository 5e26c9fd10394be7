"""When does a schedule fall due? Pure: a cron line, read on the wall clock of an IANA zone.

cronsim matches wall times; what happens when the clock is changed is decided here, after Debian's cron:

* A line for fixed times (neither its minute nor its hour begins with `*`, such as `30 2 * * *`) runs once for each wall
  time. One that the clock jumps over runs at the moment of the jump; of one that is shown twice the first counts.
* A line for intervals (`0 * * * *`, `*/15 2 * * *`) runs whenever the clock shows a match: never for a time that is
  jumped over, twice for one that is shown twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
_ANY_TIME = datetime(2026, 1, 1)  # noqa: DTZ001  # a wall time, of no zone


class BadCron(ValueError):
    """The cron line cannot be read, or never matches."""


_EACH = ", *, or lists, ranges and */steps of them"
_FIELDS = {
    "second": f"0 to 59{_EACH}",
    "minute": f"0 to 59{_EACH}",
    "hour": f"0 to 23{_EACH}",
    "day-of-month": f"1 to 31, or L for the last{_EACH}, and a day that its month has",
    "month": f"1 to 12 or JAN to DEC{_EACH}",
    "day-of-week": f"0 to 7 or SUN to SAT{_EACH}",
}


class BadZone(ValueError):
    """No such zone."""


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def zone_of(name: str) -> ZoneInfo:
    """The zone of an IANA name. Raises BadZone."""
    if name not in _zones():
        raise BadZone("must be an IANA time zone, such as Europe/Berlin or UTC")
    return ZoneInfo(name)


def check_cron(line: str) -> str:
    """The line, its blanks made single. Raises BadCron saying what is wrong."""
    fields = line.split()
    if len(fields) not in (5, 6):
        raise BadCron("must have 5 fields (minute hour day month weekday), or 6 with the second first")
    text = " ".join(fields)
    try:
        next(CronSim(text, _ANY_TIME))
    except CronSimError as error:
        field = str(error).lower().removeprefix("bad ")
        raise BadCron(f"must be a cron line that can be read: {field} is {_FIELDS.get(field, 'wrong')}") from error
    except StopIteration:
        raise BadCron("must be a cron line that matches some day") from None
    return text


class Recurrence:
    """The due times of one cron line in one zone, all in UTC. Raises BadCron or BadZone."""

    def __init__(self, cron: str, timezone: str) -> None:
        self.cron = check_cron(cron)
        self.zone = zone_of(timezone)
        minute, hour = self.cron.split()[-5:-3]
        self.fixed = not (minute.startswith("*") or hour.startswith("*"))

    def after(self, moment: datetime) -> datetime:
        """The first due time later than `moment`."""
        found = self._fixed_after(moment) if self.fixed else self._interval_after(moment)
        if found is None:
            raise BadCron("must be a cron line that matches some day")
        return found

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """The next `count` due times after `moment`."""
        found: list[datetime] = []
        while len(found) < count:
            found.append(self.after(found[-1] if found else moment))
        return found

    def newest(self, *, since: datetime, until: datetime, limit: int) -> list[datetime]:
        """The due times from `since` to `until`, both included, in order; of more than `limit` the newest.

        Costs as much as a few times the limit, however long ago `since` is.
        """
        window = limit * SECOND  # a line matches once a second at most
        while True:
            start = max(since, until - window)
            found: deque[datetime] = deque(maxlen=limit)
            due = self.after(start - timedelta(microseconds=1))
            while due <= until:
                found.append(due)
                due = self.after(due)
            if start == since or len(found) == limit:
                return list(found)
            window *= 4

    # -- the wall clock ------------------------------------------------------------------------------------------------
    def _matches(self, wall: datetime) -> Iterator[datetime]:
        """Wall times that match, later than `wall`."""
        return CronSim(self.cron, wall)

    def _shown(self, wall: datetime) -> list[datetime]:
        """The moments at which the clock shows this wall time: one, none in a gap, two where it was put back."""
        moments = {wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return sorted(at for at in moments if self._wall(at) == wall)

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _fixed_after(self, moment: datetime) -> datetime | None:
        for wall in self._matches(self._wall(moment)):
            due = self._first_shown(wall)
            if due > moment:
                return due
        return None

    def _first_shown(self, wall: datetime) -> datetime:
        """The moment of a wall time, or that of the jump that leaves it out; the clock is changed at full minutes."""
        shown = self._shown(wall)
        while not shown:
            wall = wall.replace(second=0) + MINUTE
            shown = self._shown(wall)
        return shown[0]

    def _interval_after(self, moment: datetime) -> datetime | None:
        wall = self._wall(moment)
        again = self._shown_again(wall, moment)
        for match in self._matches(wall):
            for due in self._shown(match):
                if due > moment:
                    return due if again is None else min(due, again)
        return again

    def _shown_again(self, wall: datetime, moment: datetime) -> datetime | None:
        """While the clock shows what it will show again: the first match of that second time."""
        both = self._shown(wall)
        if len(both) < 2 or moment >= both[1]:
            return None
        shift = both[1] - both[0]
        for match in self._matches(wall - shift - SECOND):
            if match > wall + shift:
                return None
            if len(shown := self._shown(match)) == 2 and shown[1] > moment:
                return shown[1]
        return None
