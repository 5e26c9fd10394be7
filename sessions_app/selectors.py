"""Sessions by their ids, whoever they belong to: an id is unique in its tenant alone, and so is its index."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db import connection

from sessions_app.models import Session

# The tenants are told from the index of identities, one probe each. CROSS: SQLite joins in the order written.
_IN_EVERY_TENANT = """\
WITH RECURSIVE known(tenant) AS (
  SELECT min(tenant) FROM sessions
  UNION ALL
  SELECT (SELECT min(s.tenant) FROM sessions s WHERE s.tenant > known.tenant) FROM known WHERE known.tenant IS NOT NULL
)
SELECT s.id FROM known CROSS JOIN sessions s WHERE s.tenant = known.tenant AND s.session_id IN ({places})
"""


def session_keys(session_ids: Sequence[str], *, tenants: Collection[str] | None) -> list[int]:
    """The keys of the sessions with these ids in these tenants, or with None in all; in no order.

    At most some hundreds of ids: they are all named in one statement.
    """
    if not session_ids:
        return []
    if tenants is not None:
        found = Session.objects.filter(tenant__in=tenants, session_id__in=session_ids)
        return list(found.values_list("pk", flat=True))
    with connection.cursor() as cursor:
        cursor.execute(_IN_EVERY_TENANT.format(places=", ".join(["%s"] * len(session_ids))), list(session_ids))
        return [pk for (pk,) in cursor.fetchall()]
