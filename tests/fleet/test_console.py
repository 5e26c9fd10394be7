"""The console: who sees what, what may be done, and that nothing an agent says becomes markup."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dispatch.models import WorkItem
from dispatch.selectors import convergence_findings
from fleet.access import api_key_create
from fleet.console import nav
from fleet.console.base import CappedPaginator, FleetAdmin
from fleet.models import TenantMembership
from sessions_app.models import AuditEntry, Turn
from tests.fleet import rows

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

HOSTILE = '"><img src=x onerror=alert(1)><div x-data x-init="alert(2)">{{7*7}}</div>'
ITEMS = "admin:dispatch_workitem_changelist"
LISTS = [
    "admin:sessions_app_session_changelist",
    "admin:sessions_app_turn_changelist",
    "admin:sessions_app_goal_changelist",
    "admin:sessions_app_auditentry_changelist",
    "admin:dispatch_workitem_changelist",
    "admin:dispatch_dispatchworker_changelist",
    "admin:dispatch_knownagent_changelist",
    "admin:dispatch_claimgate_changelist",
    "admin:dispatch_claimlimit_changelist",
    "admin:dispatch_schedule_changelist",
    "admin:dispatch_webhookdelivery_changelist",
    "admin:dispatch_webhookendpoint_changelist",
    "admin:fleet_bulkoperation_changelist",
    "admin:fleet_apikey_changelist",
    "admin:fleet_tenantmembership_changelist",
    "admin:auth_user_changelist",
    "admin:auth_group_changelist",
    "console:queue",
    "console:health",
]
WITH_EVIDENCE = ("admin:index", "console:health")
FOR_ADMINISTRATORS = [page for page in LISTS if page.startswith(("admin:auth", "admin:fleet_apikey", "admin:fleet_t"))]


def person(client: Client, name: str = "ann", *, group: str | None = None, tenants: tuple[str, ...] = ()) -> User:
    """Sign somebody in; without a group a superuser."""
    user = User.objects.create_user(name, password=None, is_staff=True, is_superuser=group is None)
    if group:
        user.groups.add(Group.objects.get(name=group))
    for tenant in tenants:
        TenantMembership.objects.create(user=user, tenant=tenant)
    client.force_login(user)
    return user


def text(answer: Any) -> str:
    assert answer.status_code == 200, answer.status_code
    return str(answer.content.decode())


@pytest.fixture
def fleet() -> dict[str, Any]:
    """Two tenants with something of everything in each."""
    made: dict[str, Any] = {}
    for tenant in ("t1", "t2"):
        session = rows.session(f"chat-{tenant}", tenant=tenant, status="active", state={"note": HOSTILE})
        failed = rows.failed_item(session, message=f"{HOSTILE} {tenant}", task=HOSTILE)
        running = rows.item(session, status="running")
        waiting = rows.item(session)
        Turn.objects.create(session=session, turn_number=1, epoch=1, work_item_id=failed.pk, status="failed", attempt=1)
        rows.goal(rows.session(f"goal-{tenant}", tenant=tenant), objective=HOSTILE)
        AuditEntry.objects.create(
            at=timezone.now(),
            actor_kind="api_key",
            actor="ci",
            tenant=tenant,
            verb="cancel",
            object_type="job",
            object_id=failed.job_id,
            reason=HOSTILE,
            result="done",
        )
        rows.schedule(f"nightly-{tenant}", tenant=tenant, task=HOSTILE, paused_reason=HOSTILE)
        made[tenant] = {"session": session, "failed": failed, "running": running, "waiting": waiting}
        made[tenant]["callback"] = rows.callback(
            failed, url=f"https://{tenant}.example.org/{HOSTILE}", state="delivered"
        )
    made["worker"] = rows.worker(made["t1"]["running"], made["t2"]["running"])
    made["key"], _ = api_key_create(name="ci", tenant="t1", scopes=["read"])
    rows.converge()
    return made


def test_the_site_uses_the_settings_of_the_console() -> None:
    assert settings.UNFOLD is nav.UNFOLD


def test_who_is_not_signed_in_is_sent_to_the_sign_in(client: Client) -> None:
    for page in ("admin:index", *LISTS):
        answer = client.get(reverse(page))
        assert answer.status_code == 302, page
        assert "/admin/login/" in answer["Location"]


@pytest.mark.parametrize("name", ["admin:index", *LISTS])
def test_a_page_opens_when_nothing_is_there(client: Client, name: str) -> None:
    person(client)
    text(client.get(reverse(name)))


def test_an_empty_list_says_so_and_one_that_is_narrowed_offers_to_clear_that(client: Client) -> None:
    person(client)
    assert "Start one: manage.py run_dispatch_worker" in text(
        client.get(reverse("admin:dispatch_dispatchworker_changelist"))
    )
    assert "Clear the filters" in text(client.get(reverse(ITEMS), {"state": "failed"}))


@pytest.mark.parametrize("name", ["admin:index", *LISTS])
def test_a_page_with_data_takes_few_queries_and_shows_no_markup_of_agents(
    client: Client, fleet: dict[str, Any], name: str
) -> None:
    if name in FOR_ADMINISTRATORS:
        person(client)
    else:  # whose groups and tenants have to be read too
        person(client, group="fleet-operator", tenants=("t1", "t2"))
    with CaptureQueriesContext(connection) as check:
        convergence_findings()  # part of the evidence, with a budget of its own
    with CaptureQueriesContext(connection) as asked:
        shown = text(client.get(reverse(name)))
    # a test's transaction turns those of the page into savepoints; a limit of time reads nothing
    own = [q["sql"] for q in asked if not re.match("SAVEPOINT|RELEASE|ROLLBACK|SELECT set_config", q["sql"])]
    assert len(own) - (len(check) if name in WITH_EVIDENCE else 0) <= 15, own
    assert "<img src=x" not in shown
    assert 'x-init="alert' not in shown


def test_the_detail_pages_take_few_queries_and_show_no_markup_of_agents(
    client: Client, fleet: dict[str, Any], django_assert_max_num_queries: Any
) -> None:
    person(client)
    mine = fleet["t1"]
    pages = [
        reverse("admin:sessions_app_session_change", args=[mine["session"].pk]),
        reverse("admin:dispatch_workitem_change", args=[mine["failed"].pk]),
        reverse("admin:dispatch_workitem_change", args=[mine["waiting"].pk]),
        reverse("admin:dispatch_dispatchworker_change", args=[fleet["worker"].pk]),
        reverse("admin:fleet_apikey_change", args=[fleet["key"].pk]),
        reverse("admin:dispatch_webhookdelivery_change", args=[mine["callback"].pk]),
        reverse("admin:dispatch_webhookendpoint_change", args=[mine["callback"].watch.endpoint_id]),
        reverse("admin:sessions_app_turn_change", args=[Turn.objects.first().pk]),  # type: ignore[union-attr]
        reverse("admin:sessions_app_auditentry_change", args=[AuditEntry.objects.first().pk]),  # type: ignore[union-attr]
    ]
    for page in pages:
        with django_assert_max_num_queries(15):
            shown = text(client.get(page))
        assert "<img src=x" not in shown, page
        assert 'x-init="alert' not in shown, page


def test_a_jobs_timeline_tells_what_people_did_to_it_and_why(client: Client, fleet: dict[str, Any]) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    waiting = fleet["t1"]["waiting"]
    AuditEntry.objects.create(  # of another tenant's job of the same id nothing is told
        at=timezone.now(), actor_kind="staff", actor="mallory", tenant="t2", verb="retry", object_type="job",
        object_id=waiting.job_id, reason="not yours", result="not_found",
    )  # fmt: skip
    confirm(client, ITEMS, "cancel_jobs", waiting, reason="the order was withdrawn")
    shown = text(client.get(reverse("admin:dispatch_workitem_change", args=[waiting.pk])))
    assert "cancel by ann: done" in shown
    assert "the order was withdrawn" in shown
    assert "mallory" not in shown


def test_turns_are_found_by_job_and_by_session_and_those_of_other_tenants_never(
    client: Client, fleet: dict[str, Any]
) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    page = reverse("admin:sessions_app_turn_changelist")
    mine, other = (Turn.objects.get(session=fleet[tenant]["session"]) for tenant in ("t1", "t2"))
    href = "admin:sessions_app_turn_change"
    for asked in ({}, {"q": fleet["t1"]["failed"].job_id}, {"q": "chat-t1"}):
        assert reverse(href, args=[mine.pk]) in text(client.get(page, asked)), asked
    for asked in ({}, {"q": fleet["t2"]["failed"].job_id}, {"q": "chat-t2"}, {"q": "chat"}):
        assert reverse(href, args=[other.pk]) not in text(client.get(page, asked)), asked


def test_a_session_shows_its_turns_and_a_job_its_timeline_and_why_it_waits(
    client: Client, fleet: dict[str, Any]
) -> None:
    person(client)
    mine = fleet["t1"]
    shown = text(client.get(reverse("admin:sessions_app_session_change", args=[mine["session"].pk])))
    for job in ("failed", "running", "waiting"):
        assert mine[job].job_id in shown
    assert "#1" in shown
    shown = text(client.get(reverse("admin:dispatch_workitem_change", args=[mine["failed"].pk])))
    assert "Timeline" in shown
    assert "agent_error" in shown
    shown = text(client.get(reverse("admin:dispatch_workitem_change", args=[mine["waiting"].pk])))
    assert "Behind turn" in shown


def test_the_fleet_page_says_what_runs_where(client: Client, fleet: dict[str, Any]) -> None:
    person(client)
    shown = text(client.get(reverse("admin:index")))
    assert fleet["worker"].worker_id in shown
    for tenant in ("t1", "t2"):
        assert f"chat-{tenant}" in shown
        assert fleet[tenant]["running"].job_id in shown
        assert fleet[tenant]["failed"].job_id in shown
    assert "Fleet evidence is healthy" in shown
    assert "all tenants" in shown


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("dispatch_workers", "Unknown: the worker registry could not be read."),
        ("outcomes", "Unknown: the work items could not be read."),
    ],
)
def test_a_part_of_the_fleet_page_that_cannot_be_read_is_unknown_and_never_0(
    client: Client, fleet: dict[str, Any], table: str, sentence: str
) -> None:
    person(client)
    rows.drop(table)
    shown = text(client.get(reverse("admin:index")))
    assert sentence in shown
    assert re.search(r'<strong class="fc-number[^"]*">unknown</strong>', shown)


def test_staff_see_the_tenants_of_their_memberships_alone(client: Client, fleet: dict[str, Any]) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    for page in ("admin:index", *[page for page in LISTS if page not in FOR_ADMINISTRATORS]):
        shown = text(client.get(reverse(page)))
        assert "chat-t2" not in shown, page
        assert "nightly-t2" not in shown, page
        assert fleet["t2"]["running"].job_id not in shown, page
        assert fleet["t2"]["failed"].job_id not in shown, page
    assert "chat-t1" in text(client.get(reverse("admin:index")))
    for name, other in (("sessions_app_session", "session"), ("dispatch_workitem", "failed")):
        answer = client.get(reverse(f"admin:{name}_change", args=[fleet["t2"][other].pk]))
        assert answer.status_code == 404


def test_staff_without_a_membership_see_no_tenant(client: Client, fleet: dict[str, Any]) -> None:
    person(client, group="fleet-viewer")
    shown = text(client.get(reverse(ITEMS)))
    assert fleet["t1"]["failed"].job_id not in shown
    assert "no tenant" in text(client.get(reverse("admin:index")))


def test_staff_in_no_group_see_nothing(client: Client, fleet: dict[str, Any]) -> None:
    user = person(client, group="fleet-viewer", tenants=("t1",))
    user.groups.clear()
    assert "none of the groups" in text(client.get(reverse("admin:index")))
    for page in LISTS:
        assert client.get(reverse(page)).status_code == 403, page


def act(client: Client, page: str, action: str, *chosen: Any, **more: str) -> Any:
    data = {"action": action, "_selected_action": [str(one.pk) for one in chosen], **more}
    return client.post(reverse(page), data, follow=True)


def confirm(client: Client, page: str, action: str, *chosen: Any, **more: str) -> Any:
    """Ask for an action, and send the form that it answers with, as it is or with other fields."""
    asked = act(client, page, action, *chosen, **{name: more.pop(name) for name in ("match",) if name in more})
    form = asked.context["page"]
    data = {
        "action": action,
        "confirmed": "yes",
        "_selected_action": "0",
        "targets": form.targets,
        "request_id": form.request_id,
        "type_this": form.type_this,
        "typed": form.type_this,
        "reason": "because",
        **more,
    }
    return client.post(reverse(page), data, follow=True)


def said(answer: Any) -> list[str]:
    return [str(message) for message in answer.context["messages"]]


def test_an_operator_cancels_through_the_service_and_it_is_audited(client: Client, fleet: dict[str, Any]) -> None:
    user = person(client, group="fleet-operator", tenants=("t1",))
    mine = fleet["t1"]
    answer = confirm(client, ITEMS, "cancel_jobs", mine["waiting"], mine["failed"], reason="not needed")
    assert said(answer) == ["Cancel: 1 done, 1 too late."]
    mine["waiting"].refresh_from_db()
    assert (mine["waiting"].status, mine["waiting"].cancel_reason) == ("cancelled", "not needed")
    entry = AuditEntry.objects.filter(actor_kind="staff", object_id=mine["waiting"].job_id).get()
    assert (entry.actor, entry.tenant, entry.reason) == (user.username, "t1", "not needed")
    assert LogEntry.objects.filter(user=user, object_id=str(mine["waiting"].pk)).count() == 1


def test_an_operator_retries_what_failed_and_a_refusal_stops_nothing(client: Client, fleet: dict[str, Any]) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    mine = fleet["t1"]
    answer = confirm(client, ITEMS, "retry_jobs", mine["waiting"], mine["failed"], reason="fixed")
    assert said(answer) == ["Retry: 1 not retryable, 1 queued."]
    mine["failed"].refresh_from_db()
    assert mine["failed"].status == "ready"
    assert AuditEntry.objects.get(verb="retry").reason == "fixed"


def test_another_tenants_job_cannot_be_chosen(client: Client, fleet: dict[str, Any]) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    mine = fleet["t1"]["waiting"]
    confirm(client, ITEMS, "cancel_jobs", mine, targets=f"{fleet['t2']['waiting'].pk}=ready-0")
    assert act(client, ITEMS, "cancel_jobs", fleet["t2"]["waiting"]).status_code == 200
    fleet["t2"]["waiting"].refresh_from_db()
    assert fleet["t2"]["waiting"].status == "ready"


def test_all_that_match_is_refused(client: Client, fleet: dict[str, Any]) -> None:
    person(client)
    answer = act(client, ITEMS, "cancel_jobs", fleet["t1"]["waiting"], select_across="1")
    assert "Choose the jobs" in said(answer)[0]
    assert not WorkItem.objects.filter(status="cancelled").exists()


def test_a_viewer_is_offered_no_action_and_a_forged_post_changes_nothing(client: Client, fleet: dict[str, Any]) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    shown = text(client.get(reverse(ITEMS)))
    assert "cancel_jobs" not in shown
    assert "retry_jobs" not in shown
    for action in ("cancel_jobs", "retry_jobs"):
        assert act(client, ITEMS, action, fleet["t1"]["waiting"], fleet["t1"]["failed"]).status_code == 403
    assert not WorkItem.objects.filter(status="cancelled").exists()
    assert not LogEntry.objects.exists()


def test_a_post_without_the_csrf_token_is_refused(fleet: dict[str, Any]) -> None:
    client = Client(enforce_csrf_checks=True)
    person(client)
    assert act(client, ITEMS, "cancel_jobs", fleet["t1"]["waiting"]).status_code == 403


def test_nothing_of_the_fleet_is_added_changed_or_deleted_by_hand(client: Client, fleet: dict[str, Any]) -> None:
    person(client)
    item = fleet["t1"]["waiting"]
    assert client.get(reverse("admin:dispatch_workitem_add")).status_code == 403
    assert client.post(reverse("admin:dispatch_workitem_delete", args=[item.pk]), {"post": "yes"}).status_code == 403
    answer = client.post(reverse("admin:dispatch_workitem_change", args=[item.pk]), {"status": "succeeded"})
    assert answer.status_code == 403
    item.refresh_from_db()
    assert item.status == "ready"


@pytest.mark.parametrize("what", ["job", "session", "nothing"])
def test_the_search_of_jobs_takes_exact_ids(client: Client, fleet: dict[str, Any], what: str) -> None:
    person(client)
    mine = fleet["t1"]
    term = {"job": mine["failed"].job_id, "session": "chat-t1", "nothing": mine["failed"].job_id[:20]}[what]
    shown = text(client.get(reverse(ITEMS), {"q": term}))
    table = shown[shown.index("result_list") :] if "result_list" in shown else ""
    assert (mine["failed"].job_id in table) == (what != "nothing")
    assert (mine["waiting"].job_id in table) == (what == "session")


def test_a_list_counts_no_further_than_its_cap(fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CappedPaginator, "CAP", 3)
    assert CappedPaginator(WorkItem.objects.order_by("-pk"), 25).count == 3


def test_every_page_of_the_fleet_counts_with_the_cap_and_offers_no_selection_of_all() -> None:
    for page in admin.site._registry.values():
        if isinstance(page, FleetAdmin):
            assert issubclass(page.paginator, CappedPaginator), page
            assert page.show_full_result_count is False, page
            assert page.list_disable_select_all is True, page


def test_no_action_of_a_page_runs_on_a_get() -> None:
    """Unfold runs an action of a row, a page or a submit line on GET unless it has a dialog; lists post theirs."""
    for page in admin.site._registry.values():
        for name in ("actions_row", "actions_detail", "actions_list", "actions_submit_line"):
            assert not getattr(page, name, ()), (page, name)


def test_the_groups_are_there_after_the_migrations() -> None:
    assert set(Group.objects.values_list("name", flat=True)) >= {"fleet-viewer", "fleet-operator", "fleet-admin"}
