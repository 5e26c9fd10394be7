"""Where the state store is a SQLite file: which one, and whether it is still there."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def state_file(connection: Any) -> Path | None:
    """The file behind a Django connection; None for another database, or one in memory."""
    if connection.vendor != "sqlite" or connection.is_in_memory_db():
        return None
    name = str(connection.settings_dict["NAME"])
    return Path(unquote(urlsplit(name).path)) if name.startswith("file:") else Path(name)
