"""A goal on Kafka: its delivery is held while its iterations run, and comes again when it was handed back or lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.test_goals import begin, begun, iterations, until_begun
from tests.support.api import Api
from tests.support.fleet import TTL_S, Fleet, Template, new_session
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.process, pytest.mark.kafka, pytest.mark.store]


@pytest.fixture(scope="module")
def installation(broker: KafkaBroker, template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    chosen: dict[str, Any] = {
        "TASK_QUEUE_BACKEND": "kafka",
        "KAFKA_BOOTSTRAP_SERVERS": broker.servers,
        "AGENT_MODULES": "tests.support.journal_agents,tests.support.goal_agents",
    }
    with Fleet(tmp_path_factory.mktemp("fleet") / "f", template, **chosen) as fleet:
        yield fleet


def test_a_loop_that_was_paused_and_whose_worker_was_killed_commits_each_iteration_once(fleet: Fleet, api: Api) -> None:
    worker, session = fleet.worker(1), new_session()
    job = begin(api, session=session, enough=4, s=0.5, deaths={"3": 1})
    until_begun(fleet, job, 1, within=40)
    api.control("pause", session)
    api.until(job, "pending", within=10)
    assert api.job(job)["attempt"] == 0
    api.control("resume", session)
    worker.wait(40)
    fleet.worker(1)
    done = api.finish([job], TTL_S + 40)[job]
    assert (done["status"], [row["iteration"] for row in iterations(api, job)]) == ("succeeded", [1, 2, 3, 4])
    assert begun(fleet, job) == [1, 2, 3, 3, 4]
