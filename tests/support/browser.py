"""A real browser for tests of the console: Chromium of the system, and what a page must not do there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from tests.support.system_packages import FOR_BROWSER, program

AXE = Axe().axe_script
WIDE, NARROW = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)


@dataclass
class Watch:
    """What pages of a context complained of, and whom they asked outside the site."""

    origin: str
    faults: list[str] = field(default_factory=list)

    def follow(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.faults.append(f"{page.url}: {error}"))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.faults.append(f"{message.location.get('url')}: {message.text}")

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).scheme in ("http", "https", "ws", "wss") and not request.url.startswith(self.origin):
            self.faults.append(f"asked {request.url}")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, or the test is skipped with the reason; in CI it fails."""
    (name,) = FOR_BROWSER
    path = program(name)
    if path is None:
        reason = f"no {name} on this machine (apt-get install {FOR_BROWSER[name]})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    expect.set_options(timeout=15_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--disable-quic", "--no-first-run"])
        try:
            yield browser
        finally:
            browser.close()


def sign_in(context: BrowserContext, origin: str, user: str, password: str) -> Page:
    page = context.new_page()
    page.goto(f"{origin}/admin/login/")
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password)
    page.press("input[name=password]", "Enter")
    page.wait_for_url(f"{origin}/admin/")
    return page


def violations(page: Page) -> list[str]:
    """What axe finds against WCAG 2.2 A and AA on the page as it is, and its contrasts once more in the dark theme."""
    page.add_style_tag(content="* { transition: none !important }")  # no colour on its way to another
    page.evaluate(AXE)
    found = _run(page, {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
    dark = page.evaluate("document.documentElement.classList.contains('dark')")
    page.evaluate("document.documentElement.classList.toggle('dark')")
    found += [f"other theme: {fault}" for fault in _run(page, {"type": "rule", "values": ["color-contrast"]})]
    page.evaluate("on => document.documentElement.classList.toggle('dark', on)", dark)
    return found


def _run(page: Page, rules: dict[str, Any]) -> list[str]:
    options = {"runOnly": rules, "resultTypes": ["violations"]}
    told: list[dict[str, Any]] = page.evaluate("options => axe.run(document, options).then(r => r.violations)", options)
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in told for node in one["nodes"]]
