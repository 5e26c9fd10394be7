"""Secrets and signatures, as Standard Webhooks has them: HMAC-SHA256 over id, timestamp and body. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"
_PURPOSE = b"fleetsite.webhook\x00"


def secret_of(secret_key: str, salt: str) -> str:
    """The secret that an endpoint's salt stands for. Without the fleet's secret key the database gives none away."""
    raw = hmac.new(secret_key.encode(), _PURPOSE + salt.encode(), hashlib.sha256).digest()
    return PREFIX + base64.b64encode(raw).decode()


def headers(*, delivery_id: str, at: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """`webhook-id`, `webhook-timestamp` and `webhook-signature`, the last with one signature for each secret."""
    signatures = (signature(delivery_id=delivery_id, at=at, body=body, secret=secret) for secret in secrets)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(signatures),
    }


def signature(*, delivery_id: str, at: int, body: bytes, secret: str) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    digest = hmac.new(key, f"{delivery_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
