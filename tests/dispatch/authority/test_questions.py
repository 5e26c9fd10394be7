"""Questions whose time comes: one reminder, then the default, unless a person was quicker."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from dispatch import selectors, services
from dispatch.access import Caller
from dispatch.errors import NoQuestion
from dispatch.models import Question, WebhookDelivery, WorkItem, WorkItemEvent
from dispatch.ports import AnswerTerms
from dispatch.states import Verb
from dispatch.webhooks.endpoints import callback_for, endpoint_add
from dispatch.webhooks.outbox import News
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

MINE = Caller(tenant="t1", name="ann", kind="api_key", scopes=frozenset({"read", "dispatch"}))
BOTH = AnswerTerms(remind_after_s=60, answer_within_s=120, default="no")


def asking(terms: AnswerTerms | None = BOTH, **more: object) -> WorkItem:
    item = world.add(**more)  # type: ignore[arg-type]
    return world.run(item, Verb.SUSPEND, code="input", question="ship it?", choices=("yes", "no"), terms=terms)


def pass_time(seconds: float) -> None:
    """As if the questions had been asked so much earlier."""
    earlier = timedelta(seconds=seconds)
    for name in ("asked_at", "remind_at", "answer_by", "due_at"):
        Question.objects.filter(**{f"{name}__isnull": False}).update(**{name: F(name) - earlier})


def tick() -> int:
    return world.authority().transitions.questions()


def reasons(item: WorkItem) -> list[tuple[str, str]]:
    events = WorkItemEvent.objects.filter(work_item=item).order_by("id")
    return list(events.values_list("event", "reason"))[2:]


def test_nothing_comes_before_its_time_and_a_plain_question_waits_for_ever() -> None:
    asking()
    asking(None, session="other")
    assert tick() == 0
    Question.objects.filter(default_answer=None).update(asked_at=F("asked_at") - timedelta(days=300))
    assert tick() == 0


def test_it_reminds_once_and_then_the_default_answers_and_the_turn_goes_on() -> None:
    item = asking()
    pass_time(61)
    assert (tick(), tick()) == (1, 0)
    assert world.fresh(item).status == "suspended"
    pass_time(60)
    assert (tick(), tick()) == (1, 0)
    question = Question.objects.get()
    assert (question.answer, question.answered_by) == ("no", "default")
    assert reasons(item) == [("suspend", "input"), ("reminder", "nobody has answered"), ("resumed", "input: default")]
    lease = world.claim_item(item)
    assert (lease.attempt, lease.resumed) == (1, True)
    world.end(lease, Verb.SUCCEEDED)
    world.check()


def test_a_reminder_that_comes_too_late_is_left_out() -> None:
    item = asking()
    pass_time(500)
    assert tick() == 1
    assert [event for event, _ in reasons(item)] == ["suspend", "resumed"]


def test_a_person_who_is_quicker_is_named_and_the_default_does_not_come() -> None:
    item = asking()
    assert services.session_reply(caller=MINE, session_id="s", text=None, choice="yes")["status"] == "pending"
    pass_time(500)
    assert tick() == 0
    assert reasons(item)[-1] == ("resumed", "input: ann")
    assert Question.objects.get().answer == "yes"


def test_of_two_processes_one_answers_and_one_reminds() -> None:
    item = asking()
    transitions = world.authority().transitions
    pass_time(61)
    (question,) = Question.objects.all()
    assert [transitions._question_due(question), transitions._question_due(question)] == [True, False]
    pass_time(60)
    question.refresh_from_db()
    assert [transitions._question_due(question), transitions._question_due(question)] == [True, False]
    with pytest.raises(NoQuestion):
        services.session_reply(caller=MINE, session_id="s", text=None, choice="yes")
    assert [event for event, _ in reasons(item)].count("resumed") == 1


def test_a_cancelled_question_is_neither_reminded_of_nor_answered() -> None:
    item = asking()
    services.job_cancel(caller=MINE, job_id=item.job_id)
    pass_time(500)
    assert tick() == 0
    assert world.fresh(item).status == "cancelled"


def test_a_reminder_moves_nothing_and_explain_says_since_when_it_is_suspended() -> None:
    item = asking()
    before = selectors.job_explain(caller=MINE, job_id=item.job_id)
    pass_time(61)
    tick()
    assert selectors.job_explain(caller=MINE, job_id=item.job_id) == before
    shown = selectors.session_get(caller=MINE, session_id="s")["needs_input"]
    assert shown["default"] == "no"
    assert shown["answer_by"] is not None
    world.check()


def test_a_default_in_a_paused_session_waits_for_its_resume() -> None:
    item = asking()
    services.sessions_control(caller=MINE, verb="pause", session_ids=["s"], reason="stop")
    pass_time(500)
    assert tick() == 1
    world.check()
    assert selectors.job_explain(caller=MINE, job_id=item.job_id)["reason"] == "session_paused"


def test_a_callback_is_told_of_question_reminder_and_end() -> None:
    endpoint_add(tenant="t1", url="https://ci.example.org/")
    item = asking(callback=callback_for("t1", "https://ci.example.org/"))
    pass_time(61)
    tick()
    pass_time(60)
    tick()
    world.run(item, Verb.SUCCEEDED)
    News().look()
    told = list(WebhookDelivery.objects.order_by("pk").values_list("event", flat=True))
    assert told == ["job.suspended", "job.reminder", "job.succeeded"]
