"""What of this layer retention deletes: samples by their own age, bulk operations as the audit does."""

from __future__ import annotations

from dispatch.maintenance.aged import AgedTable, days, register_aged
from fleet.models import BulkOperation, FleetSample


def register() -> None:
    register_aged(
        lambda config: AgedTable(model=FleetSample, at="at", age=days(config.retention_samples_days)),
    )
    register_aged(
        lambda config: AgedTable(model=BulkOperation, at="finished_at", age=days(config.retention_audit_days)),
    )
