"""Two web processes, three workers and an open console on one SQLite file."""

from __future__ import annotations

import http.cookiejar
import re
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.fleet import PASSWORD, STAFF, Fleet, Template
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]
JOBS = 2_000


@pytest.fixture(scope="module")
def installation(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet") / "f", template, web=2) as fleet:
        yield fleet


class Console:
    """A browser's part: signs in, then asks for pages."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._jar))
        form = self.page("/admin/login/?next=/admin/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None
        fields = {"username": STAFF, "password": PASSWORD, "csrfmiddlewaretoken": token[1], "next": "/admin/"}
        data = urllib.parse.urlencode(fields).encode()
        with self._opener.open(f"{self._base}/admin/login/?next=/admin/", data, timeout=30) as answer:
            assert answer.url == f"{self._base}/admin/", "signed in"

    def page(self, path: str) -> str:
        """Raises HTTPError for a 500."""
        with self._opener.open(self._base + path, timeout=30) as answer:
            return str(answer.read().decode())


@pytest.mark.timeout(240)
def test_two_thousand_jobs_run_once_each_and_nobody_sees_a_locked_file(fleet: Fleet) -> None:
    api = fleet.api("t1")
    console, over = Console(fleet.port), threading.Event()
    pages: list[str] = []
    failures: list[BaseException] = []

    def look() -> None:
        while not over.wait(0.5):
            try:
                pages.append(console.page("/admin/"))
                fleet.topology()
            except BaseException as error:
                failures.append(error)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        workers = [fleet.launch(4) for _ in range(3)]
        fleet.until_live(*workers)
        body = {"task": "x", "agent_name": "note"}
        handles = [handle for _ in range(4) for handle in api.ok("dispatch_many", jobs=[body] * (JOBS // 4))["jobs"]]
        jobs = {handle["job_id"] for handle in handles}
        assert len(jobs) == JOBS
        more = {api.dispatch("note") for _ in range(20)}

        def unfinished() -> int:
            query = "SELECT count(*) FROM work_items WHERE finished_at IS NULL"
            return int(fleet.state_sql(query)[0][0])

        until(lambda: unfinished() == 0, 150, "all jobs end", every=0.5)
    finally:
        over.set()
        watcher.join()
    assert not failures
    assert len(pages) > 3
    counts = dict(fleet.state_sql("SELECT status, count(*) FROM work_items GROUP BY status"))
    assert counts == {"succeeded": JOBS + 20}
    runs = fleet.journal.runs()
    assert {run.job for run in runs} == jobs | more
    assert len(runs) == JOBS + 20
    assert len({run.pid for run in runs}) == 3
    for proc in fleet.procs:
        log = proc.text().lower()
        assert "locked" not in log, proc.tail()
        assert "traceback" not in log, proc.tail()
