"""A turn's trace context goes with its row, by whichever statement it is admitted and claimed."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch.models import WorkItem
from dispatch.states import Verb
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("more", [{}, {"on_busy": "reject"}], ids=["by function", "portably"])
def test_it_is_kept_from_admission_through_every_claim(many: int, more: dict[str, Any]) -> None:
    items = [world.new(f"s{n}", traceparent=CONTEXT, max_attempts=9, **more) for n in range(many)]
    world.authority().submit([*items, world.new("plain", **more)])
    leases = {lease.session_id: lease for lease in world.claim(want=9)}
    assert [leases[item.session_id].traceparent for item in items] == [CONTEXT] * many
    assert leases["plain"].traceparent is None
    world.end(leases["s0"], Verb.HANDBACK)
    assert world.claim_item(WorkItem.objects.get(pk=leases["s0"].item_id)).traceparent == CONTEXT
