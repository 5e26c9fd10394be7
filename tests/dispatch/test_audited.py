"""What somebody does and its entry in the audit are one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection

from dispatch import services
from dispatch.models import Question, WorkItem
from dispatch.states import Verb
from sessions_app.models import AuditEntry, Session
from tests.dispatch.authority import world
from tests.dispatch.test_services import MINE, dispatch, item_of

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


@contextmanager
def unwritable_audit() -> Iterator[None]:
    def rename(one: str, other: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {one} RENAME TO {other}")

    rename("audit_entries", "audit_gone")
    try:
        yield
    finally:
        rename("audit_gone", "audit_entries")


ACTS: dict[str, Callable[[WorkItem], object]] = {
    "cancel": lambda item: services.job_cancel(caller=MINE, job_id=item.job_id),
    "retry": lambda item: services.job_retry(caller=MINE, job_id=item.job_id),
    "reply": lambda item: services.session_reply(caller=MINE, session_id="s", text="this", choice=None),
    "pause": lambda item: services.sessions_control(caller=MINE, verb="pause", session_ids=["s"], reason=""),
    "kill": lambda item: services.sessions_control(caller=MINE, verb="kill", session_ids=["s"], reason=""),
}


@pytest.mark.parametrize("verb", ACTS)
def test_what_cannot_be_audited_is_not_done(verb: str) -> None:
    """The act and its entry are one commit: whoever dies in between leaves neither."""
    if verb == "retry":
        item = world.run(item_of(dispatch(session_id="s")), Verb.FAILED, code="agent_error")
    elif verb == "reply":
        item = world.run(item_of(dispatch(session_id="s")), Verb.SUSPEND, code="input", question="which?")
    else:
        item = item_of(dispatch(session_id="s"))

    def seen() -> tuple[Any, ...]:
        row = WorkItem.objects.filter(pk=item.pk).values().get()
        return row, Session.objects.filter(session_id="s").values().get(), list(Question.objects.values())

    before = seen()
    with unwritable_audit(), pytest.raises(DatabaseError):
        ACTS[verb](item)
    assert seen() == before
    ACTS[verb](item)
    assert list(AuditEntry.objects.values_list("verb", flat=True)) == [verb]
    assert seen() != before
    world.check()
