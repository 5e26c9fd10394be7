"""Pictures of the console, from generated data at a fixed time, so that they can be made again:

python -m tests.support.screenshots            those of docs/console.md, into docs/images/ or where --into says
python -m tests.support.screenshots --all DIR  every page, light and dark, wide and narrow, empty, full and failing
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Literal, Self
from unittest.mock import patch
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from playwright.sync_api import Browser, BrowserContext, ViewportSize

from tests.support.browser import NARROW, chromium, sign_in

ROOT = Path(__file__).resolve().parents[2]
READ = "const age = document.getElementById('fc-read'); if (age) age.textContent = 'read 2 s ago'"
IMAGES = ROOT / "docs" / "images"
NAME, PASSWORD = "alex", "a long enough password"
WIDE = ViewportSize(width=1440, height=900)
PRINTED = ViewportSize(width=1280, height=980)
FAILING = (
    "dispatch_workers",
    "outcomes",
    "ticks",
    "dead_envelopes",
    "fleet_samples",
)  # tables that are gone in the failing state
PAGES = {
    "fleet": "/admin/",
    "queue": "/admin/queue/",
    "health": "/admin/health/",
    "task": "/admin/dispatch-task/",
    "sessions": "/admin/sessions_app/session/",
    "items": "/admin/dispatch/workitem/",
    "workers": "/admin/dispatch/dispatchworker/",
    "schedules": "/admin/dispatch/schedule/",
    "callbacks": "/admin/dispatch/webhookdelivery/",
    "endpoints": "/admin/dispatch/webhookendpoint/",
    "operations": "/admin/fleet/bulkoperation/",
    "audit": "/admin/sessions_app/auditentry/",
}


Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the pictures are the output."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


@contextmanager
def at_fixed_time(moment: datetime) -> Iterator[None]:
    """Django's clock, and SQLite's, stand still."""
    from django.db.models.functions import Now

    class Still(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(moment.timestamp(), tz)

    literal = moment.strftime("'%Y-%m-%d %H:%M:%S.%f'")

    def now_sql(self: Any, compiler: Any, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template=literal, **more)

    with (
        patch("django.utils.timezone.now", lambda: moment),
        patch("dispatch.clock.datetime", Still),
        patch("dispatch.selectors.datetime", Still),
        patch.object(Now, "as_sqlite", now_sql),
    ):
        yield


@contextmanager
def served() -> Iterator[str]:
    """The site on a free port of the loopback address."""
    from django.core.wsgi import get_wsgi_application

    application = get_wsgi_application()
    with make_server("127.0.0.1", 0, application, server_class=_Server, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Studio:
    """One installation, a browser that is signed in to it, and what it is to show."""

    def __init__(self, browser: Browser, origin: str) -> None:
        self._browser, self._origin = browser, origin

    @contextmanager
    def window(self, size: ViewportSize, theme: Theme) -> Iterator[BrowserContext]:
        context = self._browser.new_context(
            viewport=size, base_url=self._origin, reduced_motion="reduce", color_scheme=theme
        )
        with context:
            yield context

    def take(self, pages: dict[str, str], place: Path, *, size: ViewportSize, theme: Theme, whole: bool) -> None:
        with self.window(size, theme) as context:
            page = sign_in(context, self._origin, NAME, PASSWORD)
            for name, address in pages.items():
                page.goto(address)
                page.wait_for_load_state("networkidle")
                page.evaluate("document.fonts.ready")
                page.evaluate(READ)
                page.screenshot(path=place / f"{name}.png", full_page=whole)
                print(place / f"{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="DIR", help="every page in every state, into this directory")
    parser.add_argument("--into", type=Path, metavar="DIR", default=IMAGES, help="where those of the documents go")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleetsite-pictures-") as data:
        os.environ |= {"AGENT_DATA_DIR": data, "DJANGO_SETTINGS_MODULE": "fleetsite.settings"}
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # the browser's driver keeps a loop running in this thread
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        from tests.support import scenery

        with at_fixed_time(scenery.NOW), chromium() as browser, served() as origin:
            scenery.person(NAME, PASSWORD)
            studio = Studio(browser, origin)
            if wanted.all is None:
                _for_the_documents(studio, wanted.into)
                (wanted.into / "chromium").write_text(f"{browser.version}\n")
            else:
                _all(studio, wanted.all)


def _for_the_documents(studio: Studio, place: Path) -> None:
    from tests.support import scenery

    scene = scenery.play()
    place.mkdir(exist_ok=True)
    shown = {name: PAGES[name] for name in ("fleet", "queue", "health")}
    studio.take({**shown, "work-item": scene.item}, place, size=PRINTED, theme="light", whole=False)
    studio.take({"fleet-dark": PAGES["fleet"]}, place, size=PRINTED, theme="dark", whole=False)
    studio.take({"fleet-phone": PAGES["fleet"]}, place, size=NARROW, theme="light", whole=False)


def _all(studio: Studio, place: Path) -> None:
    from tests.fleet import rows
    from tests.support import scenery

    def every(state: str, pages: dict[str, str]) -> None:
        for theme in THEMES:
            for size in (WIDE, NARROW):
                where = place / state / f"{theme}-{size['width']}"
                where.mkdir(parents=True, exist_ok=True)
                studio.take(pages, where, size=size, theme=theme, whole=True)

    every("empty", PAGES)
    scene = scenery.play()
    every(
        "full",
        {
            **PAGES,
            "item": scene.item,
            "session": scene.session,
            "operation": scene.operation,
            "callback": scene.callback,
            "told": scene.told,
        },
    )
    for table in FAILING:
        rows.drop(table)
    every("failing", {name: PAGES[name] for name in ("fleet", "queue", "health")})


if __name__ == "__main__":
    main()
