"""The page that lists the settings, against the class that reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fleetsite.config import SECRETS, VARIABLES, AgentConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \| ([^|]+) \|$", re.M)
KAFKA = "`KAFKA_SECURITY_*`, `KAFKA_SASL_*`, `KAFKA_SSL_*`"
COMPUTED = {
    "AGENT_DATA_DIR": "`fleetsite` in the XDG data home",
    "AGENT_DISPATCH_RENEW_INTERVAL_S": "a third of the TTL, at most 30",
    "KAFKA_SESSION_TIMEOUT_S": "half the TTL, 6 to 45",
    "AGENT_WORKER_HOST_LABEL": "a keyed digest of the host name",
    "DJANGO_SECRET_KEY": "made once, kept in `secret_key` in the data directory, mode 0600",
}


def shown(default: Any) -> str:
    if default in (None, ()):
        return "unset"
    if isinstance(default, tuple):
        return f"`{','.join(default)}`"
    if isinstance(default, bool):
        return f"`{int(default)}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def documented() -> dict[str, str]:
    rows = [(name, default) for name, default, _ in ROW.findall(PAGE.read_text()) if name not in ("name", KAFKA)]
    assert len(rows) == len(dict(rows)), "docs/configuration.md lists a setting twice"
    return {name.strip("`"): default for name, default in rows}


def test_the_page_lists_exactly_the_settings_that_are_read() -> None:
    assert set(documented()) == set(VARIABLES), "mend docs/configuration.md: one row for each alias of AgentConfig"
    assert KAFKA in PAGE.read_text()


def test_the_page_tells_the_defaults_that_are_used() -> None:
    fields = {field.alias: field for field in AgentConfig.model_fields.values() if field.alias}
    used = {name: COMPUTED.get(name) or shown(field.default) for name, field in fields.items()}
    assert documented() == used, "mend docs/configuration.md: a default differs from AgentConfig's"


def test_the_page_lists_exactly_the_secrets_that_have_a_file_form() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)_FILE` \| `([A-Z_]+)` \|$", PAGE.read_text(), re.M)
    assert {name for name, _ in listed} == SECRETS
    assert all(name == secret for name, secret in listed)
