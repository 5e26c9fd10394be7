"""Opaque cursors: a keyset position, never an offset, so that pages stay stable while rows move."""

from __future__ import annotations

import base64
import binascii

from dispatch.errors import Invalid


def encode_cursor(kind: str, position: int) -> str:
    return base64.urlsafe_b64encode(f"{kind}:{position}".encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None) -> int | None:
    """The position; raise Invalid for what no page of this kind has answered."""
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
        name, _, number = text.partition(":")
        if name == kind and number.isdigit() and len(number) < 19:
            return int(number)
    except (binascii.Error, ValueError):
        pass
    raise Invalid("the cursor is not one of this list", fields={"cursor": "must be the next_cursor of an earlier page"})
