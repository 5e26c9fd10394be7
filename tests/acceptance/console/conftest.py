"""A fleet in which something of everything has happened, and a browser signed in to its console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.acceptance.console.scene import Scene
from tests.support.browser import WIDE, Watch, chromium, sign_in
from tests.support.fleet import PASSWORD, STAFF, Fleet


@pytest.fixture(scope="module")
def scene(installation: Fleet) -> Scene:
    return Scene.play(installation)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def signed_in(browser: Browser, installation: Fleet) -> Iterator[tuple[Page, Watch]]:
    origin = f"http://127.0.0.1:{installation.port}"
    context = browser.new_context(viewport=WIDE, base_url=origin)
    context.set_default_timeout(10_000)
    watch = Watch(origin)
    context.on("page", watch.follow)
    yield sign_in(context, origin, STAFF, PASSWORD), watch
    context.close()


@pytest.fixture
def page(signed_in: tuple[Page, Watch]) -> Iterator[Page]:
    """The module's page, at its usual size; what it complained of fails the test."""
    shown, watch = signed_in
    shown.set_viewport_size(WIDE)
    shown.emulate_media(color_scheme="light")
    yield shown
    told, watch.faults = watch.faults, []
    assert not told, told
