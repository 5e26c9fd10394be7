"""Sessions by their ids, whoever they belong to: an id is unique in its tenant alone, and so is its index."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db import connection
from django.db.models import QuerySet

from sessions_app.models import Session

MOST_DOMAINS = 1_000

# The tenants are told from the index of identities, one probe each. CROSS: SQLite joins in the order written.
_IN_EVERY_TENANT = """\
WITH RECURSIVE known(tenant) AS (
  SELECT min(tenant) FROM sessions
  UNION ALL
  SELECT (SELECT min(s.tenant) FROM sessions s WHERE s.tenant > known.tenant) FROM known WHERE known.tenant IS NOT NULL
)
SELECT s.id FROM known CROSS JOIN sessions s WHERE s.tenant = known.tenant AND s.session_id IN ({places})
"""


_DOMAINS = """\
WITH RECURSIVE known(domain) AS (
  SELECT min(domain) FROM sessions
  UNION ALL
  SELECT (SELECT min(s.domain) FROM sessions s WHERE s.domain > known.domain) FROM known WHERE known.domain IS NOT NULL
)
SELECT domain FROM known WHERE domain IS NOT NULL LIMIT %s
"""


def with_status(sessions: QuerySet[Session], status: str) -> QuerySet[Session]:
    """Those with this status, which may be few among very many: said by domain as well, as their index is.

    Where there are more than a thousand domains they are looked for without it.
    """
    with connection.cursor() as cursor:
        cursor.execute(_DOMAINS, [MOST_DOMAINS + 1])
        domains = [domain for (domain,) in cursor.fetchall()]
    found = sessions.filter(status=status)
    return found if len(domains) > MOST_DOMAINS else found.filter(domain__in=domains)


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
