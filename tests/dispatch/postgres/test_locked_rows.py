"""A delivery whose row somebody is at for a moment is offered again at once, and not when the next one comes in."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.dispatch.authority import world
from tests.dispatch.authority.test_deliveries import Process
from tests.dispatch.authority.test_limits import limit
from tests.dispatch.postgres import ground
from tests.support.mock_broker import MockBroker

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]
LOCK = "SELECT 1 FROM agent_dispatch_queue WHERE work_item_id = %s FOR UPDATE"


@pytest.mark.parametrize("limited", [False, True])
def test_who_waits_for_news_is_woken_for_a_delivery_whose_row_was_locked(broker: MockBroker, limited: bool) -> None:
    process, item = Process("w1", broker.servers), world.add("s")
    if limited:  # claimed by the portable statements then
        limit(max_running=5)
    inbox = process.transport.inbox
    with psycopg.connect(ground.uri()) as somebody:  # as who has just sent it, and says so in its row
        somebody.execute(LOCK, [item.pk])
        process.deliver(item)
        seen = inbox.news
        assert process.claim(want=1) == []
        began = time.monotonic()
        assert inbox.wait(seen, 20)
        assert time.monotonic() - began < 5
    (lease,) = process.claim(want=1)
    assert lease.job_id == item.job_id
    assert not inbox.wait(inbox.news, 0.1), "there is nothing more to wake for"
