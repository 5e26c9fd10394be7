"""Writes of this floor: a session opened on purpose, and the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import IntegrityError, transaction

from sessions_app.models import AuditEntry, Session


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited:
    """One act of somebody on something."""

    actor_kind: str
    actor: str
    tenant: str
    verb: str
    object_type: str
    object_id: str
    reason: str = ""
    result: str = ""
    request_id: str = ""


def audit_write(acts: Sequence[Audited]) -> None:
    now = datetime.now(UTC)
    rows = ({**asdict(act), "object_id": act.object_id[:200], "reason": act.reason[:500]} for act in acts)
    AuditEntry.objects.bulk_create([AuditEntry(at=now, **row) for row in rows], batch_size=500)


def session_open(
    *, tenant: str, session_id: str, metadata: dict[str, Any], state: dict[str, Any], now: datetime
) -> bool:
    """Make the session; False when it exists."""
    try:
        with transaction.atomic():
            Session.objects.create(
                tenant=tenant, session_id=session_id, metadata=metadata, state=state, created_at=now, updated_at=now
            )
    except IntegrityError:
        return False
    return True
