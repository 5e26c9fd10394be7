"""How long a silent network is believed in: what libpq is told on every connection to Postgres."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

# A peer that has vanished without a word, its packets dropped on the way, is found out well within the half minute
# after which a blind claim loop gives up. What the operator's own address says wins.
PATIENCE: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds that sent data may stay without an answer of the peer's kernel
}


def patient(uri: str, **more: str) -> str:
    """The address with these limits added where it sets none, and `more` put in."""
    parts: dict[str, Any] = {**PATIENCE, **conninfo_to_dict(uri), **more}
    return make_conninfo(**parts)
