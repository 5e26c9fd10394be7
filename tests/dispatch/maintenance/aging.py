"""Jobs that ended long ago, and passes of retention over them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dispatch.authority.removal import Removed
from dispatch.maintenance.aged import AgedTable
from dispatch.maintenance.pruner import Pruner, prune
from dispatch.maintenance.retention import Policy
from dispatch.models import WorkItem
from dispatch.states import Verb
from sessions_app.models import Session
from tests.dispatch.authority import world

WEEK = timedelta(days=7)
MONTH = timedelta(days=30)


def policy(**changes: Any) -> Policy:
    values: dict[str, Any] = {
        "jobs_age": WEEK,
        "jobs_max": None,
        "sessions_age": WEEK,
        "sessions_max": None,
        "session_turns": 2,
    }
    return Policy(**{**values, **changes})


def pruned(tables: tuple[AgedTable, ...] = (), **changes: Any) -> Removed:
    return prune(Pruner(world.authority(), policy=policy(**changes), tables=tables))


def age(*items: WorkItem, by: timedelta = MONTH, session_too: bool = True) -> None:
    """Let jobs have been admitted and ended long ago, and their sessions have been quiet since."""
    for item in items:
        row = world.fresh(item)
        WorkItem.objects.filter(pk=item.pk).update(
            created_at=row.created_at - by, finished_at=row.finished_at and row.finished_at - by
        )
        if session_too:
            session = world.session_of(item)
            Session.objects.filter(pk=session.pk).update(
                created_at=session.created_at - by, updated_at=session.updated_at - by
            )


def ended(session: str = "s", verb: str = Verb.SUCCEEDED, **more: Any) -> WorkItem:
    return world.run(world.add(session, **more), verb)


def there(*items: WorkItem) -> list[bool]:
    return [WorkItem.objects.filter(pk=item.pk).exists() for item in items]
