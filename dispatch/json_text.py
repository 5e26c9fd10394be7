"""A value as the JSON text whose bytes limits are about. Pure."""

from __future__ import annotations

import json
from typing import Any

json_text = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode  # made once: that costs more than its use


def json_size(value: Any) -> int:
    """Bytes of its JSON text."""
    return len(json_text(value).encode())
