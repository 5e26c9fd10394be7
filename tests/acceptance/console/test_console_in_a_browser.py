"""The console in a real browser: nobody is kept out of it, and its acts reach the workers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.acceptance.console.scene import Scene
from tests.support.browser import NARROW, WIDE, sign_in, violations
from tests.support.fleet import PASSWORD
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.browser, pytest.mark.slow]

SESSIONS = "/admin/sessions_app/session/"
ITEMS = "/admin/dispatch/workitem/"
LISTS = [
    "/admin/",
    "/admin/?span=24h",
    "/admin/queue/",
    "/admin/health/",
    "/admin/dispatch-task/",
    SESSIONS,
    f"{SESSIONS}?q=domain:reports",
    ITEMS,
    "/admin/dispatch/dispatchworker/",
    "/admin/dispatch/schedule/",
    "/admin/dispatch/claimgate/",
    "/admin/dispatch/claimgate/add/",
    "/admin/dispatch/claimlimit/",
    "/admin/dispatch/claimlimit/add/",
    "/admin/sessions_app/turn/",
    "/admin/sessions_app/goal/",
    "/admin/sessions_app/auditentry/",
    "/admin/fleet/bulkoperation/",
    "/admin/fleet/apikey/",
    "/admin/fleet/apikey/add/",
    "/admin/dispatch/webhookdelivery/",
    "/admin/dispatch/webhookendpoint/",
    "/admin/dispatch/knownagent/",
    "/admin/auth/user/",
]


def first_of(page: Page, address: str, text: str = "") -> str:
    """Where the first row of a list that has this text leads to."""
    page.goto(address)
    row = page.locator("#result_list tbody tr", has_text=text).first
    href = row.locator("a[href]").first.get_attribute("href")
    assert href is not None
    return href


def is_active(part: Locator) -> bool:
    """Whether keys go to it, once the window has them: another test's window may be in front."""
    return bool(part.evaluate("part => part === document.activeElement"))


@pytest.fixture(scope="module")
def details(signed_in: tuple[Page, Any], scene: Scene) -> list[str]:
    page, _ = signed_in
    return [
        first_of(page, SESSIONS, "runaway"),
        first_of(page, SESSIONS, "paint"),
        first_of(page, SESSIONS, "billing"),
        first_of(page, f"{ITEMS}?q={scene.long_running}"),
        first_of(page, f"{ITEMS}?q={scene.failed}"),
        first_of(page, "/admin/dispatch/schedule/"),
        first_of(page, "/admin/dispatch/claimlimit/"),
        first_of(page, "/admin/dispatch/dispatchworker/"),
        first_of(page, "/admin/sessions_app/goal/"),
        first_of(page, "/admin/dispatch/webhookdelivery/"),
        first_of(page, f"{ITEMS}?q={scene.told}"),
    ]


@pytest.mark.timeout(300)  # some thirty pages, each looked at twice
def test_no_page_has_a_fault_of_accessibility_in_either_theme_or_scrolls_sideways(
    page: Page, scene: Scene, details: list[str]
) -> None:
    faults = {}
    for address in [*LISTS, *details]:
        page.goto(address)
        if found := violations(page):
            faults[address] = found
        page.set_viewport_size(NARROW)
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            faults[address] = [*found, "scrolls sideways"]
        page.set_viewport_size(WIDE)
    assert not faults


def test_what_an_agent_was_told_and_said_stays_text(page: Page, scene: Scene, details: list[str]) -> None:
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto(details[2])
    expect(page.locator(".fc-turn")).to_contain_text('"><img src=x onerror=alert(1)>')
    expect(page.locator(".fc-turn")).to_contain_text("{{7*7}}")
    assert page.locator(".fc-turn img").count() == 0


def test_chosen_sessions_are_paused_and_the_outcome_of_each_is_shown(page: Page, scene: Scene) -> None:
    scene.api.control("resume", "nightly-1")
    scene.api.control("pause", "nightly-2")
    page.goto(SESSIONS)
    for name in ("nightly-1", "nightly-2"):
        page.locator("#result_list tr", has_text=name).locator("input.action-select").check()
    page.select_option("select[name=action]", "pause_sessions")
    assert not violations(page), "the bar of the actions"
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("Pause 2 sessions?")).to_be_visible()
    assert not violations(page), "the confirming page"
    until(lambda: is_active(page.get_by_label("Reason")), 10, "the reason has the focus")
    page.get_by_role("button", name="Pause 2 sessions").click()
    expect(page).to_have_url(re.compile(f"{SESSIONS}$"))  # an empty reason is not sent
    page.get_by_label("Reason").fill("a drill")
    page.get_by_role("button", name="Pause 2 sessions").dblclick()
    expect(page).to_have_url(re.compile("/bulkoperation/"))
    rows = page.get_by_role("region", name="Outcomes").locator("tbody tr")
    expect(rows.filter(has_text="nightly-1")).to_contain_text("applied")
    expect(rows.filter(has_text="nightly-2")).to_contain_text("already")
    assert not violations(page), "the operation's page"
    assert scene.api.get("/api/sessions/nightly-1")["status"] == "paused"


def test_all_that_match_are_resumed_and_a_domain_has_to_be_typed(page: Page, scene: Scene) -> None:
    scene.api.control("pause", "nightly-1", "nightly-2")
    page.goto(f"{SESSIONS}?q=domain:reports")
    page.get_by_role("button", name="Resume all…").click()
    page.get_by_label("Type reports to confirm").fill("report")
    page.get_by_role("button", name="Resume 2 sessions").click()
    expect(page.get_by_role("alert")).to_contain_text("Type reports to confirm. Nothing was done.")
    page.get_by_label("Type reports to confirm").fill("reports")
    page.get_by_role("button", name="Resume 2 sessions").click()
    expect(page.get_by_role("region", name="Outcomes").locator("tbody tr")).to_have_count(2)
    assert scene.api.get("/api/sessions/nightly-2")["status"] == "idle"


def test_a_running_turn_is_killed_by_keyboard_alone_and_the_page_shows_when_it_has_stopped(
    page: Page, scene: Scene, details: list[str]
) -> None:
    page.goto(details[0])
    expect(page.get_by_role("heading", name="It is running")).to_be_visible()
    kill = page.get_by_role("button", name="Kill…")
    for _ in range(60):
        page.keyboard.press("Tab")
        if is_active(kill):
            break
    page.keyboard.press("Enter")
    until(lambda: is_active(page.get_by_label("Reason")), 10, "the reason has the focus")
    page.keyboard.type("runaway loop")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Kill: 1 requested.")).to_be_visible()
    expect(page.locator(".fc-act", has_text="kill by")).to_contain_text("runaway loop")
    scene.api.until(scene.long_running, "cancelled", within=15)
    page.reload()
    expect(page.get_by_role("heading", name="It is at rest")).to_be_visible()
    events = scene.api.ok("events", job_id=scene.long_running)["events"]
    assert any("runaway loop" in (event["reason"] or "") for event in events)


def test_a_question_is_answered_from_its_session_and_the_turn_goes_on(
    page: Page, scene: Scene, details: list[str]
) -> None:
    page.goto(details[1])
    expect(page.get_by_text("waits for an answer")).to_be_visible()
    page.get_by_label("Your answer").fill("green")
    page.get_by_role("button", name="Reply").click()
    expect(page.get_by_text("Sent: the turn goes on with it.")).to_be_visible()
    assert scene.api.finish([scene.asking], 15)[scene.asking]["result"]["reply"] == "green"


def test_a_job_that_ended_badly_runs_again_from_its_page(page: Page, scene: Scene, details: list[str]) -> None:
    page.goto(details[4])
    expect(page.get_by_role("heading", name="It has ended")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel…")).to_be_disabled()
    page.get_by_role("button", name="Retry…").click()
    page.get_by_label("Reason").fill("the disk has room again")
    page.get_by_role("button", name="Retry orch-").click()
    expect(page.get_by_text("Retry: 1 queued.")).to_be_visible()
    expect(page.get_by_text("reopened")).to_be_visible()


def test_a_viewer_is_shown_no_act(browser: Browser, scene: Scene, details: list[str]) -> None:
    scene.fleet.python(
        "from django.contrib.auth.models import Group, User\n"
        "from fleet.models import TenantMembership\n"
        f"vic = User.objects.create_user('vic', password={PASSWORD!r}, is_staff=True)\n"
        "vic.groups.add(Group.objects.get(name='fleet-viewer'))\n"
        "TenantMembership.objects.create(user=vic, tenant='t1')\n"
    )
    origin = f"http://127.0.0.1:{scene.fleet.port}"
    with browser.new_context(base_url=origin, viewport=WIDE) as context:
        page = sign_in(context, origin, "vic", PASSWORD)
        for address in (SESSIONS, details[1], details[4]):
            page.goto(address)
            expect(page.get_by_role("button", name=re.compile("…$"))).to_have_count(0)
            expect(page.locator("select[name=action]")).to_have_count(0)
