"""The page of the runs of agents."""

from __future__ import annotations

from fleet.console.base import FleetAdmin, column, time_column
from fleet.console.labels import VARIANTS
from sessions_app.models import Turn


class TurnAdmin(FleetAdmin):
    """Runs of agents, newest first."""

    tenant_path = "session__tenant"
    list_display = ("turn", "session", "status_label", "attempt", "epoch", "started", "finished")
    list_select_related = ("session",)
    ordering = ("-pk",)
    fields = ("session", "turn_number", "status_label", "attempt", "epoch", "work_item_id", "started", "finished")

    @column("Turn")
    def turn(self, obj: Turn) -> str:
        return f"Turn {obj.turn_number}"

    @column("Status", variants=VARIANTS)
    def status_label(self, obj: Turn) -> str:
        return obj.status.replace("_", " ")

    started = time_column("started_at", "Started")
    finished = time_column("finished_at", "Finished")
