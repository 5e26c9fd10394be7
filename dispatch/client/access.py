"""Where the server is and with which key: read once, refused at once when it cannot be right."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from dispatch.client.errors import ClientMisuse

KEY_FILE = "AGENT_API_KEY_FILE"


@dataclass(frozen=True, slots=True)
class Access:
    """A base address without its last slash, and a key that is never shown."""

    base_url: str
    key: str = field(repr=False)

    @classmethod
    def of(cls, base_url: str, key: str | None) -> Access:
        """Without a key, the one in the file that AGENT_API_KEY_FILE names. Raises ClientMisuse."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ClientMisuse("base_url: must be an address such as https://fleet.example.org")
        if parts.username is not None or parts.password is not None:
            raise ClientMisuse("base_url: must have no user or password; the key goes into `key`")
        return cls(base_url.rstrip("/"), _usable(_from_file() if key is None else key))


def _from_file() -> str:
    name = os.environ.get(KEY_FILE)
    if not name:
        raise ClientMisuse(f"key: must be an API key, or {KEY_FILE} must name a file with one")
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ClientMisuse(f"{KEY_FILE}: cannot be read ({type(error).__name__})") from None


def _usable(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ClientMisuse("key: must be an API key as issue_api_key printed it")
    return key
