"""A fleet for each module, started once; each test leaves it without workers of its own and without claimable work."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, Template
from tests.support.processes import Proc


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    made = Template.make(tmp_path_factory.mktemp("template"))
    yield made
    made.remove()


@pytest.fixture(scope="module")
def installation(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The module's fleet, one web process."""
    with Fleet(tmp_path_factory.mktemp("fleet") / "f", template) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def standing_worker(installation: Fleet) -> Proc:
    """One worker for a whole module: two consumers of four slots."""
    return installation.worker(2, "--capacity", 4, "--grace", 2)


@pytest.fixture
def fleet(installation: Fleet) -> Iterator[Fleet]:
    before = list(installation.procs)
    yield installation
    installation.stop([proc for proc in installation.procs if proc not in (*before, installation.web)])
    if installation.web is not None and not installation.web.alive:
        installation.start_web()
    installation.sweep()


@pytest.fixture
def api(fleet: Fleet) -> Api:
    return fleet.api("t1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the ends of the processes' logs."""
    report = yield
    if report.failed:
        report.sections += [("processes", fleet.tails()) for fleet in Fleet.standing]
    return report
