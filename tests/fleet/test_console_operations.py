"""Acting from the console: asked once more, done once, in the person's tenants alone, told for each."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dispatch.models import Question, WorkItem
from fleet.console import operations
from fleet.console.operations import ActingAdmin
from fleet.console.sessions import SessionAdmin
from fleet.console.work import WorkItemAdmin
from fleet.models import BulkOperation
from sessions_app.models import AuditEntry, Session
from tests.fleet import rows
from tests.fleet.test_console import HOSTILE, ITEMS, act, confirm, person, said, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

SESSIONS = "admin:sessions_app_session_changelist"


def page_of(session: Session) -> str:
    return reverse("admin:sessions_app_session_change", args=[session.pk])


def wishes() -> dict[str, str]:
    return dict(Session.objects.values_list("session_id", "desired"))


def audited() -> list[tuple[str, ...]]:
    fields = ("actor", "tenant", "verb", "object_id", "reason", "result")
    return list(AuditEntry.objects.order_by("id").values_list(*fields))


def operator(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))


def test_asking_shows_what_would_be_done_and_changes_nothing(client: Client) -> None:
    operator(client)
    busy, still = rows.session("busy"), rows.session("still")
    rows.item(busy)
    shown = text(act(client, SESSIONS, "kill_sessions", busy, still))
    assert "Kill 2 sessions?" in shown
    assert "nothing will be done to it" in shown
    assert set(wishes().values()) == {"run"}
    assert not AuditEntry.objects.exists()
    assert not BulkOperation.objects.exists()


def test_an_operator_pauses_and_resumes_and_each_outcome_is_shown_audited_and_mirrored(client: Client) -> None:
    operator(client)
    one, two = rows.session("one"), rows.session("two")
    rows.session("other")
    answer = confirm(client, SESSIONS, "pause_sessions", one, two, reason="vendor down")
    assert said(answer) == ["Pause: 2 applied."]
    shown = text(answer)
    assert "What became of each" in shown
    assert page_of(one) in shown
    assert page_of(two) in shown
    assert wishes() == {"one": "pause", "two": "pause", "other": "run"}
    assert audited() == [("ann", "t1", "pause", name, "vendor down", "applied") for name in ("one", "two")]
    operation = BulkOperation.objects.get()
    assert (operation.status, operation.counts, operation.tenant) == ("done", {"applied": 2}, "t1")
    assert set(AuditEntry.objects.values_list("request_id", flat=True)) == {operation.request_id}
    note = LogEntry.objects.get(object_id=str(one.pk)).get_change_message()
    assert note == f"Pause: applied (vendor down; request {operation.request_id})"
    answer = confirm(client, SESSIONS, "resume_sessions", one, reason="")
    assert answer.redirect_chain[-1][0] == page_of(one), "one object's outcome is told on its own page"
    assert said(answer) == ["Resume: 1 applied."]


def test_a_kill_cancels_what_waits_and_tells_what_runs(client: Client) -> None:
    operator(client)
    waiting, running, still = rows.session("waiting"), rows.session("running"), rows.session("still")
    queued, runs = rows.item(waiting), rows.item(running, status="running")
    rows.converge()
    answer = confirm(client, SESSIONS, "kill_sessions", waiting, running, still, reason="runaway")
    assert said(answer) == ["Kill: 1 already, 1 applied, 1 requested."]
    queued.refresh_from_db()
    runs.refresh_from_db()
    assert (queued.status, runs.status) == ("cancelled", "running")
    assert runs.cancel_requested_at is not None
    shown = text(client.get(page_of(running)))
    assert "kill by ann" in shown
    assert "not yet seen by its worker" in shown


@pytest.mark.parametrize("action", ["pause_sessions", "kill_sessions"])
def test_without_a_reason_nothing_is_done_and_the_form_comes_back(client: Client, action: str) -> None:
    operator(client)
    answer = confirm(client, SESSIONS, action, rows.session("one"), reason=" ")
    assert "the field Reason is empty" in text(answer)
    assert answer.context["page"].targets
    assert wishes() == {"one": "run"}


def test_a_form_sent_twice_acts_once(client: Client) -> None:
    operator(client)
    one = rows.session("one")
    request_id = "0123456789abcdef"
    confirm(client, SESSIONS, "pause_sessions", one, request_id=request_id)
    confirm(client, SESSIONS, "resume_sessions", one)
    answer = confirm(client, SESSIONS, "pause_sessions", one, request_id=request_id)
    assert said(answer) == ["This was asked before, and was done once."]
    assert wishes() == {"one": "run"}


def test_what_changed_while_the_form_was_open_is_left_alone_and_said(client: Client) -> None:
    operator(client)
    session = rows.session("one")
    job = rows.item(session)
    asked = act(client, ITEMS, "cancel_jobs", job).context["page"].targets
    WorkItem.objects.filter(pk=job.pk).update(status="running", owner="token", epoch=1, lease_expires_at=timezone.now())
    answer = confirm(client, ITEMS, "cancel_jobs", job, targets=asked)
    assert said(answer) == ["Cancel: 1 changed."]
    job.refresh_from_db()
    assert job.cancel_requested_at is None
    assert not AuditEntry.objects.exists()
    assert not LogEntry.objects.exists()


def test_who_resumes_undoes_the_pause_that_they_saw_and_no_later_one(client: Client) -> None:
    operator(client)
    session = rows.session("one", desired="pause", desired_at=timezone.now(), status="paused")
    seen = act(client, SESSIONS, "resume_sessions", session).context["page"].targets
    Session.objects.update(desired_at=timezone.now(), desired_by="bob")
    assert said(confirm(client, SESSIONS, "resume_sessions", session, targets=seen)) == ["Resume: 1 changed."]
    assert wishes() == {"one": "pause"}


def test_all_that_match_the_filter_are_acted_on_and_nobody_else(client: Client) -> None:
    operator(client)
    for number in range(30):
        rows.session(f"s-{number}", status="failed")
    rows.session("idle")
    rows.session("theirs", tenant="t2", status="failed")
    some: Any = Session.objects.first()
    address = f"{reverse(SESSIONS)}?state=failed"
    assert "All sessions that match" in text(client.get(address))
    assert "All sessions that match" not in text(client.get(reverse(SESSIONS)))
    data = {"action": "pause_sessions", "_selected_action": "0", "match": "all"}
    form = client.post(address, data).context["page"]
    assert (form.question, form.type_this, form.more) == ("Pause 30 sessions?", "30", 5)
    sent = {"targets": form.targets, "request_id": form.request_id}
    answer = confirm(client, SESSIONS, "pause_sessions", some, **sent, typed="29")
    assert "Type 30 to confirm" in text(answer)
    assert set(wishes().values()) == {"run"}
    answer = confirm(client, SESSIONS, "pause_sessions", some, **sent, type_this="", typed="30")
    assert said(answer) == ["Pause: 30 applied."]
    paused = Session.objects.filter(desired="pause")
    assert set(paused.values_list("tenant", "status")) == {("t1", "paused")}
    assert paused.count() == 30
    assert client.post(reverse(SESSIONS), data, follow=True).context["messages"]
    assert "Narrow the list first" in said(client.post(reverse(SESSIONS), data, follow=True))[0]


def test_more_than_an_operation_takes_is_refused_with_nothing_done(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator(client)
    monkeypatch.setattr(SessionAdmin, "most", 2)
    made = [rows.session(f"s-{number}", status="failed") for number in range(3)]
    data = {"action": "kill_sessions", "_selected_action": "0", "match": "all"}
    answer = client.post(f"{reverse(SESSIONS)}?state=failed", data, follow=True)
    assert said(answer) == ["More than 2 sessions match. Narrow the filter, or do it in parts. Nothing was done."]
    monkeypatch.setattr(SessionAdmin, "most", 10)
    monkeypatch.setattr(operations, "FOR_ADMINISTRATORS", 2)
    assert "for the group fleet-admin" in text(confirm(client, SESSIONS, "kill_sessions", *made))


def test_a_domain_is_confirmed_by_its_name_and_killed_by_administrators(client: Client) -> None:
    operator(client)
    one = rows.session("one", metadata={"domain": "money"})
    rows.item(one)
    rows.converge()
    data = {"action": "kill_sessions", "_selected_action": "0", "match": "all"}
    form = client.post(f"{reverse(SESSIONS)}?q=domain:money", data).context["page"]
    assert form.type_this == "money"
    sent = {"targets": form.targets, "request_id": form.request_id, "type_this": "money"}
    assert "for the group fleet-admin" in text(confirm(client, SESSIONS, "kill_sessions", one, **sent, typed="money"))
    person(client, "root")
    assert "Type money to confirm" in text(confirm(client, SESSIONS, "kill_sessions", one, **sent, typed="mony"))
    assert said(confirm(client, SESSIONS, "kill_sessions", one, **sent, typed="money")) == ["Kill: 1 applied."]


def test_the_same_session_id_in_another_tenant_is_left_alone(client: Client) -> None:
    person(client)
    mine, theirs = rows.session("chat", tenant="t1"), rows.session("chat", tenant="t2")
    confirm(client, SESSIONS, "pause_sessions", mine)
    theirs.refresh_from_db()
    assert theirs.desired == "run"


def test_another_tenants_session_cannot_be_acted_on(client: Client) -> None:
    mine, theirs = rows.session("mine"), rows.session("theirs", tenant="t2")
    operator(client)
    assert said(act(client, SESSIONS, "kill_sessions", theirs)) == ["No session of this list was chosen."]
    answer = confirm(client, SESSIONS, "pause_sessions", mine, targets=f"{theirs.pk}=")
    assert said(answer) == ["Pause: 1 gone."]
    assert set(wishes().values()) == {"run"}
    assert "theirs" not in text(answer)


@pytest.mark.parametrize("action", list(SessionAdmin.verbs))
def test_a_viewer_sees_no_button_and_a_forged_form_is_refused(client: Client, action: str) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    session = rows.session("one")
    assert action not in text(client.get(reverse(SESSIONS)))
    assert action not in text(client.get(page_of(session)))
    data = {"action": action, "confirmed": "yes", "targets": f"{session.pk}=", "request_id": "x", "reason": "x"}
    assert client.post(reverse(SESSIONS), data).status_code == 403
    assert wishes() == {"one": "run"}


@pytest.mark.parametrize("targets", ["", "x", "1=a b", "1", ",".join(["1=ready-0"] * 1_001)])
def test_a_form_that_is_not_whole_is_refused(client: Client, targets: str) -> None:
    operator(client)
    job = rows.item(rows.session("one"))
    assert confirm(client, ITEMS, "cancel_jobs", job, targets=targets).status_code == 400


def test_every_page_that_acts_has_a_reason_or_says_that_none_is_needed() -> None:
    for page in (SessionAdmin, WorkItemAdmin):
        assert issubclass(page, ActingAdmin)
        for verb in page.verbs.values():
            assert verb.needs_reason or not verb.destructive, verb.name


def test_an_operation_is_seen_in_its_tenant_and_one_over_several_by_who_did_it(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1", "t2"))
    confirm(client, SESSIONS, "pause_sessions", rows.session("one"), rows.session("two", tenant="t2"))
    confirm(client, SESSIONS, "pause_sessions", rows.session("three"))
    page = reverse("admin:fleet_bulkoperation_changelist")
    assert "Pause 2 sessions" in text(client.get(page))
    person(client, "bob", group="fleet-viewer", tenants=("t1",))
    shown = text(client.get(page))
    assert "Pause 1 session" in shown
    assert "Pause 2 sessions" not in shown


def asking(session: Session, *, choices: list[str] | None = None) -> Question:
    job = rows.item(session, status="suspended", suspended_for="input", epoch=1)
    Session.objects.filter(pk=session.pk).update(status="needs_input")
    rows.converge()
    return Question.objects.create(
        work_item=job, session=session, epoch=1, question=f"colour? {HOSTILE}", choices=choices, asked_at=timezone.now()
    )


def reply(client: Client, session: Session, question: Question, **sent: str) -> list[str]:
    address = reverse("admin:sessions_app_session_reply", args=[session.pk])
    return said(client.post(address, {"question": question.pk, **sent}, follow=True))


def test_an_operator_answers_the_question_of_a_session(client: Client) -> None:
    operator(client)
    session = rows.session("one")
    question = asking(session, choices=["red", "blue"])
    shown = text(client.get(page_of(session)))
    assert 'value="red"' in shown
    assert "<img src=x" not in shown
    assert "choice must be one of" in reply(client, session, question, choice="green")[0]
    assert reply(client, session, question, choice="red") == ["Sent: the turn goes on with it."]
    question.refresh_from_db()
    assert (question.answer, question.answered_by) == ("red", "ann")
    assert audited() == [("ann", "t1", "reply", "one", "", "applied")]
    assert LogEntry.objects.filter(object_id=str(session.pk)).count() == 1
    assert "Nothing was sent" in reply(client, session, question, choice="red")[0]


def test_an_answer_to_a_question_that_is_no_longer_open_is_not_sent(client: Client) -> None:
    operator(client)
    session = rows.session("one")
    question = asking(session)
    answer = client.post(
        reverse("admin:sessions_app_session_reply", args=[session.pk]),
        {"question": question.pk + 1, "text": "red"},
        follow=True,
    )
    assert said(answer) == ["Another question is open by now. Nothing was sent."]
    question.refresh_from_db()
    assert question.answered_at is None


def test_only_an_operator_of_the_tenant_answers_and_only_by_post(client: Client) -> None:
    session = rows.session("one")
    question = asking(session)
    address = reverse("admin:sessions_app_session_reply", args=[session.pk])
    person(client, "vic", group="fleet-viewer", tenants=("t1",))
    assert "Your answer" not in text(client.get(page_of(session)))
    assert client.post(address, {"question": question.pk, "text": "x"}).status_code == 403
    person(client, "olga", group="fleet-operator", tenants=("t2",))
    assert client.post(address, {"question": question.pk, "text": "x"}).status_code == 404
    assert client.get(address).status_code == 405
    question.refresh_from_db()
    assert question.answered_at is None


def test_the_turns_of_a_session_come_fifty_at_a_time_with_the_acts_between_them(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    operator(client)
    session = rows.session("long")
    for number in range(52):
        rows.failed_item(session, task=f"task {number}.", message="it broke")
    rows.item(session, task="task 52.")
    rows.converge()
    confirm(client, SESSIONS, "pause_sessions", session, reason="look first")
    with django_assert_max_num_queries(15):
        shown = text(client.get(page_of(session)))
    assert "task 52." in shown
    assert "task 2." not in shown
    assert "pause by ann: applied" in shown
    assert "look first" in shown
    assert "agent_error: it broke" in shown
    assert "session long was paused by ann" in shown
    earlier = text(client.get(f"{page_of(session)}?before=4"))
    for number in range(3):
        assert f"task {number}." in earlier
    assert "task 3." not in earlier
