"""Pages that read themselves anew: when they ask, when they do not, and what they say when nobody answers."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

from tests.support.browser import WIDE, Watch, sign_in, violations
from tests.support.fleet import PASSWORD, STAFF, Fleet
from tests.support.processes import Proc, until

pytestmark = [pytest.mark.process, pytest.mark.browser, pytest.mark.slow]

ITEMS = "/admin/dispatch/workitem/"
HIDE = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s})"
NODES = "document.querySelectorAll('*').length"
MOST_LEFT = 150_000  # bytes of the heap; one copy of the page kept for each reading would be many times that
QUICK = "localStorage.setItem('fc-every', '2')"
FOCUSED = "document.hasFocus = () => true"  # whatever window is in front


class Asked:
    """Requests of a page for what it shows, and how many of them were under way at once."""

    def __init__(self, page: Page) -> None:
        self.count = self.under_way = self.most = 0
        page.on("request", self._began)
        for event in ("requestfinished", "requestfailed"):
            page.on(event, self._ended)

    def seen_after(self, page: Page) -> int:
        """How many it has been a moment later: events come while the page is waited for."""
        page.wait_for_timeout(200)
        return self.count

    def _began(self, request: Request) -> None:
        if request.resource_type == "fetch":
            self.count += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)

    def _ended(self, request: Request) -> None:
        if request.resource_type == "fetch":
            self.under_way -= 1


@contextmanager
def window(browser: Browser, fleet: Fleet, **more: Any) -> Iterator[tuple[BrowserContext, Page]]:
    """A browser of its own, signed in, that reads anew every two seconds."""
    origin = f"http://127.0.0.1:{fleet.port}"
    with browser.new_context(base_url=origin, viewport=WIDE, **more) as context:
        context.set_default_timeout(15_000)
        context.add_init_script(QUICK)
        context.add_init_script(FOCUSED)
        watch = Watch(origin)
        context.on("page", watch.follow)
        yield context, sign_in(context, origin, STAFF, PASSWORD)


def tile(page: Page, title: str) -> Any:
    return page.locator(".fc-tile", has=page.get_by_text(title, exact=True)).locator(".fc-number")


@pytest.fixture(scope="module", autouse=True)
def _worker(installation: Fleet) -> Proc:
    return installation.worker(1, "--capacity", 4, "--grace", 1)


def test_a_number_changes_on_the_page_without_a_reload(browser: Browser, installation: Fleet) -> None:
    with window(browser, installation) as (_, page):
        page.evaluate("window.notReloaded = true")
        expect(tile(page, "Running turns")).to_have_text("0")
        job = installation.api().dispatch("wait", "changes", s=60)
        expect(tile(page, "Running turns")).to_have_text("1")
        installation.api().ok("cancel", job_id=job)
        expect(tile(page, "Running turns")).to_have_text("0")
        assert page.evaluate("window.notReloaded")


def test_a_list_reads_itself_anew_but_for_while_a_row_is_ticked(browser: Browser, installation: Fleet) -> None:
    api = installation.api()
    job = api.dispatch("wait", "listed", s=60)
    api.until(job, "running", within=20)
    with window(browser, installation) as (_, page):
        page.goto(f"{ITEMS}?q=listed")
        page.evaluate("window.notReloaded = true")
        row = page.locator("#result_list .data-row")
        expect(row).to_contain_text("running", ignore_case=True)
        row.locator("input.action-select").check()
        asked = Asked(page)
        api.ok("cancel", job_id=job)
        api.until(job, "cancelled", within=20)
        page.wait_for_timeout(5_000)
        assert asked.count == 0, "somebody is about to act on what it shows"
        row.locator("input.action-select").uncheck()
        page.evaluate("document.activeElement.blur()")
        expect(row).to_contain_text("cancelled", ignore_case=True)
        assert page.evaluate("window.notReloaded")


def test_after_readings_of_a_list_the_ticked_rows_are_those_that_are_acted_on(
    browser: Browser, installation: Fleet
) -> None:
    api = installation.api()
    first = api.dispatch("note", "acted-on")
    api.finish([first], 20)
    with window(browser, installation) as (_, page):
        page.goto(f"{ITEMS}?q=acted-on")
        rows = page.locator("#result_list .data-row")
        expect(rows).to_have_count(1)
        second = api.dispatch("note", "acted-on")
        expect(rows).to_have_count(2)  # it takes the whole page anew
        expect(rows.first).to_contain_text(second)
        expect(rows.first).to_contain_text("succeeded", ignore_case=True)
        page.locator("input.action-toggle").check()
        expect(page.locator("input.action-select:checked")).to_have_count(2)
        page.select_option("select[name=action]", "cancel_jobs")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_text("Cancel 2 jobs?")).to_be_visible()
        for job in (first, second):
            expect(page.get_by_text(job)).to_be_visible()


@pytest.mark.parametrize("why", ["hidden", "off", "focus", "selection"])
def test_nothing_is_asked_while_nobody_looks_or_somebody_is_busy(
    browser: Browser, installation: Fleet, why: str
) -> None:
    start = {
        "hidden": lambda page: page.evaluate(HIDE % "true"),
        "off": lambda page: page.select_option("#fc-every", "off"),
        "focus": lambda page: page.locator("#fc-live a").first.focus(),
        "selection": lambda page: page.evaluate(
            "getSelection().selectAllChildren(document.querySelector('#fc-live h2'))"
        ),
    }
    end = {
        "hidden": lambda page: page.evaluate(HIDE % "false"),
        "off": lambda page: page.select_option("#fc-every", "2"),
        "focus": lambda page: page.evaluate("document.activeElement.blur()"),
        "selection": lambda page: page.evaluate("getSelection().removeAllRanges()"),
    }
    with window(browser, installation) as (_, page):
        start[why](page)
        page.wait_for_timeout(500)
        asked = Asked(page)
        page.wait_for_timeout(6_000)
        assert asked.count == 0
        end[why](page)
        page.wait_for_event("request", predicate=lambda request: request.resource_type == "fetch", timeout=8_000)


def test_the_choice_of_how_often_is_kept(browser: Browser, installation: Fleet) -> None:
    origin = f"http://127.0.0.1:{installation.port}"
    with browser.new_context(base_url=origin, viewport=WIDE) as context:
        page = sign_in(context, origin, STAFF, PASSWORD)
        page.select_option("#fc-every", "60")
        page.goto("/admin/queue/")
        expect(page.locator("#fc-every")).to_have_value("60")


@pytest.mark.timeout(120)
def test_a_server_that_does_not_answer_is_told_with_an_age_and_never_asked_twice_at_once(
    browser: Browser, installation: Fleet
) -> None:
    assert installation.web is not None
    with window(browser, installation) as (_, page):
        before = tile(page, "Live workers").inner_text()
        asked = Asked(page)
        installation.web.signal_group(signal.SIGSTOP)
        try:
            bar = page.locator("#fc-connection")
            expect(bar).to_be_visible(timeout=20_000)
            expect(bar).to_have_text(re.compile(r"No answer from the server\. What you see was read \d+ s ago\."))
            until(lambda: asked.seen_after(page) >= 3, 40, "it asks again, and again")
            assert tile(page, "Live workers").inner_text() == before, "what was read stays"
            assert asked.most == 1
        finally:
            installation.web.signal_group(signal.SIGCONT)
        expect(bar).to_be_hidden(timeout=60_000)


def test_a_session_that_has_ended_leads_to_the_sign_in_and_puts_no_form_into_the_page(
    browser: Browser, installation: Fleet
) -> None:
    with window(browser, installation) as (context, page):
        page.goto("/admin/queue/")
        context.clear_cookies()
        page.wait_for_url(re.compile("/admin/login/"))
        expect(page.locator("#fc-live")).to_have_count(0)


def test_thirty_readings_leave_the_page_as_large_as_it_was_and_an_open_table_open(
    browser: Browser, installation: Fleet
) -> None:
    with window(browser, installation) as (context, page):
        inspector = context.new_cdp_session(page)

        def heap() -> int:
            for _ in range(3):  # what the first round frees may hold what the next one frees
                inspector.send("HeapProfiler.collectGarbage")
            return int(inspector.send("Runtime.getHeapUsage")["usedSize"])

        page.select_option("#fc-every", "off")
        page.locator("summary").first.click()
        page.evaluate("document.activeElement.blur()")

        def read() -> None:
            with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
                page.evaluate("document.dispatchEvent(new Event('fc:refresh'))")
            page.wait_for_function("document.getElementById('fc-read').textContent.startsWith('read')")
            page.wait_for_timeout(60)

        for _ in range(5):  # what is made once is made by then
            read()
        nodes, bytes_before = page.evaluate(NODES), heap()
        for _ in range(30):
            read()
        assert heap() - bytes_before <= MOST_LEFT, "thirty readings leave no more than this in memory"
        assert abs(page.evaluate(NODES) - nodes) <= nodes / 20, "what runs and what was done may come and go"
        assert page.locator("details[open]").count() == 1


def test_ages_are_the_servers_whatever_the_browsers_clock_and_zone_say(browser: Browser, installation: Fleet) -> None:
    with window(browser, installation, timezone_id="Pacific/Auckland") as (context, page):
        context.clock.install()
        context.clock.fast_forward("10:00")
        page.goto("/admin/dispatch/dispatchworker/")
        beat = page.locator("#result_list time").first
        assert re.fullmatch(r"\d+ s ago", beat.inner_text())
        assert (beat.get_attribute("title") or "").endswith("UTC")
        page.goto("/admin/health/")
        expect(page.locator("#fc-live")).to_contain_text(re.compile(r"Read at \d\d:\d\d:\d\d UTC"))


def test_back_from_a_page_shows_the_whole_list_with_its_filter(browser: Browser, installation: Fleet) -> None:
    installation.api().finish([installation.api().dispatch("note", "back")], 20)
    with window(browser, installation) as (_, page):
        page.goto(f"{ITEMS}?state=succeeded")
        page.locator("#result_list tbody tr a").first.click()
        expect(page.get_by_role("heading", name="It has ended")).to_be_visible()
        page.evaluate("document.dispatchEvent(new Event('fc:refresh'))")
        page.go_back()
        expect(page).to_have_url(re.compile(r"\?state=succeeded$"))
        expect(page.locator("#nav-sidebar-inner")).to_be_visible()
        expect(page.locator("#result_list tbody tr").first).to_be_visible()


def test_a_task_is_dispatched_once_by_a_double_click_and_its_page_follows_it(
    browser: Browser, installation: Fleet
) -> None:
    with window(browser, installation) as (_, page):
        page.goto("/admin/dispatch-task/")
        page.get_by_label("Agent").select_option("note")
        page.get_by_label("Task").fill("Say <b>hello</b>")
        page.get_by_label("Session").fill("from-the-console")
        page.get_by_label("Tenant").fill("t1")
        page.get_by_role("button", name="Dispatch").dblclick()
        expect(page.get_by_text("Dispatched. This page follows it.")).to_be_visible()
        expect(page.get_by_role("heading", name="It has ended")).to_be_visible()
        expect(page.locator("#fc-output-note")).to_have_text("it has ended")
    jobs = installation.api().ok("list", session_id="from-the-console")["jobs"]
    assert [job["task"] for job in jobs] == ["Say <b>hello</b>"]


@pytest.mark.timeout(120)
def test_the_output_of_a_running_turn_grows_on_its_page_and_goes_on_after_a_reload(
    browser: Browser, installation: Fleet
) -> None:
    job = installation.api().dispatch("talk", "talks", s=9)
    installation.api().until(job, "running", within=20)
    with window(browser, installation) as (_, page):
        page.goto(f"{ITEMS}?q={job}")
        page.locator("#result_list tbody tr a").first.click()
        page.evaluate("window.notReloaded = true")
        said = page.locator("#fc-output")
        expect(said).to_be_visible()
        first = len(said.inner_text())
        until(lambda: page.evaluate("document.getElementById('fc-output').textContent.length") > first, 20, "it grows")
        assert page.evaluate("window.notReloaded")
        page.reload()
        last = int(said.get_attribute("data-last") or 0)
        assert last > 0
        expect(page.locator("#fc-output-note")).to_have_text("it has ended", timeout=30_000)
        ((newest,),) = installation.state_sql(
            "SELECT max(id) FROM output_chunks WHERE work_item_id = (SELECT id FROM work_items WHERE job_id = ?)", job
        )
        until(lambda: int(said.get_attribute("data-last") or 0) == newest, 20, "the last piece is there")


def test_keys_lead_to_pages_and_the_palette_finds_an_exact_id(browser: Browser, installation: Fleet) -> None:
    job = installation.api().dispatch("note", "palette")
    with window(browser, installation) as (_, page):
        for keys, path in (("gq", "/admin/queue/"), ("gh", "/admin/health/"), ("gf", "/admin/")):
            for key in keys:
                page.keyboard.press(key)
            expect(page).to_have_url(re.compile(f"{path}$"))
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_contain_text("g q")
        assert not violations(page), "the help"
        page.get_by_label("single keys are on").uncheck()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("q")
        page.wait_for_timeout(500)
        expect(page).to_have_url(re.compile("/admin/$"))
        page.keyboard.press("Control+k")
        page.locator("#search-input-command").press_sequentially(job)
        page.locator("#command-results a", has_text=job).click()
        expect(page.get_by_text(job).first).to_be_visible()
        expect(page).to_have_url(re.compile(rf"{ITEMS}\d+/change/$"))


PEOPLE = {"vera": "fleet-viewer", "otto": "fleet-operator", "ada": "fleet-admin"}
PLACES = [
    "/admin/", "/admin/queue/", "/admin/health/", "/admin/sessions_app/session/", ITEMS, "/admin/dispatch/schedule/",
    "/admin/dispatch/dispatchworker/", "/admin/sessions_app/auditentry/", "/admin/fleet/bulkoperation/",
]  # fmt: skip


@pytest.mark.timeout(180)
def test_no_page_asks_outside_or_complains_for_viewer_operator_and_administrator(
    browser: Browser, installation: Fleet
) -> None:
    origin = f"http://127.0.0.1:{installation.port}"
    installation.python(
        "from django.contrib.auth.models import Group, User\n"
        "from fleet.models import TenantMembership\n"
        f"for name, group in {PEOPLE!r}.items():\n"
        f"    user = User.objects.create_user(name, password={PASSWORD!r}, is_staff=True)\n"
        "    user.groups.add(Group.objects.get(name=group))\n"
        "    TenantMembership.objects.create(user=user, tenant='t1')\n"
    )
    for name in PEOPLE:
        with browser.new_context(base_url=origin, viewport=WIDE) as context:
            watch = Watch(origin)
            context.on("page", watch.follow)
            page = sign_in(context, origin, name, PASSWORD)
            for place in PLACES:
                answer = page.goto(place)
                assert answer is not None
                assert answer.status == 200, (name, place)
                page.wait_for_load_state("networkidle")
            assert not watch.faults, name


@pytest.mark.timeout(180)
def test_lines_of_charts_take_the_colours_of_the_theme_also_after_a_reading(
    browser: Browser, installation: Fleet
) -> None:
    until(lambda: installation.state_sql("SELECT count(*) FROM fleet_samples")[0][0], 90, "a sample is written")
    colour = "getComputedStyle(document.querySelector('.fc-line-area')).stroke"
    with window(browser, installation, color_scheme="light") as (_, page):
        page.goto("/admin/queue/?span=1h")
        light = page.evaluate(colour)
        page.emulate_media(color_scheme="dark")
        page.reload()
        dark = page.evaluate(colour)
        assert dark != light
        with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
            page.evaluate("document.dispatchEvent(new Event('fc:refresh'))")
        page.wait_for_timeout(300)
        assert page.evaluate(colour) == dark
        expect(page.get_by_role("img", name=re.compile("^Live workers, last 1 h: workers now 1"))).to_be_visible()
