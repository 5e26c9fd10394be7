"""The page of the agents: which names are known, and how many live workers run each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from dispatch.models import DispatchWorker
from fleet.console.base import FleetAdmin, column, time_column
from fleet.console.labels import BAD, GOOD


class KnownAgentAdmin(FleetAdmin):
    """Names that workers have announced. A name that no live worker has is accepted, and its turns wait."""

    tenant_path = None
    list_display = ("name", "served_label", "consumers", "seen_first", "seen_last")
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = "A part of the name"
    fields = ("name", "served_label", "consumers", "seen_first", "seen_last")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        listed = super().get_changelist_instance(request)
        _look(listed.result_list)
        return listed

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        agent = super().get_object(request, object_id, from_field)
        if not hasattr(agent, "live"):
            _look([agent])
        return agent

    @column("State", variants={"served": GOOD, "no live worker": BAD})
    def served_label(self, obj: Any) -> str:
        return "served" if obj.live else "no live worker"

    @column("Live consumers")
    def consumers(self, obj: Any) -> str:
        return f"{obj.live:,}"

    seen_first = time_column("first_seen", "First announced")
    seen_last = time_column("last_seen", "Last announced")


def _look(agents: Sequence[Any]) -> None:
    """Note how many live consumers that take new turns have each."""
    fresh = timezone.now() - timedelta(seconds=settings.FLEETSITE.worker_stale_s)
    live = DispatchWorker.objects.filter(last_heartbeat__gte=fresh, draining=False).values_list("agents", flat=True)
    counts = Counter(name for names in live for name in set(names))
    for agent in agents:
        agent.live = counts[agent.name]
