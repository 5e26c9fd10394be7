"""Questions of suspended turns: asked in the commit that suspends, reminded of and answered by default in time."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F

from dispatch.clock import store_now
from dispatch.models import Question
from dispatch.ports import Settlement

BATCH = 100
DEFAULT = "default"  # who has answered when nobody did


def ask(settlement: Settlement, session_pk: int, now: datetime) -> None:
    """Write the question of a turn that is being suspended."""
    terms = settlement.terms
    remind_at = _after(now, terms.remind_after_s if terms else None)
    answer_by = _after(now, terms.answer_within_s if terms else None)
    Question.objects.create(
        work_item_id=settlement.lease.item_id,
        session_id=session_pk,
        epoch=settlement.lease.epoch,
        question=settlement.question or "",
        choices=list(settlement.choices) if settlement.choices else None,
        asked_at=now,
        remind_at=remind_at,
        answer_by=answer_by,
        default_answer=terms.default if terms else None,
        due_at=min((moment for moment in (remind_at, answer_by) if moment is not None), default=None),
    )


def _after(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)


def due() -> list[Question]:
    """The open questions whose time has come, to be reminded of or answered; the longest due first."""
    return list(Question.objects.still_open().filter(due_at__lte=store_now()).order_by("due_at", "pk")[:BATCH])


def take_reminder(question: Question, now: datetime) -> bool:
    """Mark it as reminded of, once, while it is open."""
    waits = Question.objects.still_open().filter(pk=question.pk, reminded_at=None, remind_at__lte=now)
    return bool(waits.update(reminded_at=now, due_at=F("answer_by")))
