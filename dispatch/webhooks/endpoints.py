"""Endpoints: which address of a tenant a job may name, and with which secrets it is told."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from dispatch import wiring
from dispatch.clock import store_now
from dispatch.errors import Invalid, WebhookNotFound
from dispatch.inputs import refusal
from dispatch.models import WebhookEndpoint
from dispatch.ports import Callback
from dispatch.webhooks.addresses import check_url, is_under
from dispatch.webhooks.signing import secret_of


def callback_for(tenant: str, url: str) -> Callback:
    """The endpoint of the tenant that an address lies under, the nearest of several. Raises Invalid."""
    known = [endpoint for endpoint in WebhookEndpoint.objects.filter(tenant=tenant) if is_under(endpoint.url, url)]
    if not known:
        raise refusal(
            {"callback_url": "must lie under a webhook endpoint of this tenant; manage.py webhooks add makes one"}
        )
    return Callback(endpoint_id=max(known, key=lambda endpoint: len(endpoint.url)).pk, url=url)


def endpoint_add(*, tenant: str, url: str) -> tuple[WebhookEndpoint, str]:
    """A new endpoint and its secret. Raises Invalid for an address that can never be called, or is there already."""
    try:
        parts = check_url(url)
    except ValueError as error:
        raise refusal({"url": str(error)}) from None
    if parts.scheme != "https" and not wiring.config().webhook_allow_private:
        raise refusal({"url": "must be an https:// address; AGENT_WEBHOOK_ALLOW_PRIVATE=1 allows http://"})
    endpoint, made = WebhookEndpoint.objects.get_or_create(
        tenant=tenant, url=url, defaults={"salt": new_salt(), "created_at": store_now()}
    )
    if not made:
        raise Invalid("The tenant has this endpoint already.", fields={"url": "is an endpoint already"})
    return endpoint, secret_of(settings.SECRET_KEY, endpoint.salt)


def endpoint_rotate(*, tenant: str, url: str, keep: timedelta) -> str:
    """Give it a new secret; the old one signs as well for so long. Raises WebhookNotFound."""
    with transaction.atomic():
        endpoint = WebhookEndpoint.objects.select_for_update().filter(tenant=tenant, url=url).first()
        if endpoint is None:
            raise WebhookNotFound
        endpoint.old_salt, endpoint.salt = endpoint.salt, new_salt()
        endpoint.old_until = store_now() + keep
        endpoint.save(update_fields=["old_salt", "salt", "old_until"])
    return secret_of(settings.SECRET_KEY, endpoint.salt)


def endpoint_remove(*, tenant: str, url: str) -> None:
    """Take it away with what was still to be sent there. Raises WebhookNotFound."""
    gone, _ = WebhookEndpoint.objects.filter(tenant=tenant, url=url).delete()
    if not gone:
        raise WebhookNotFound


def secrets_of(endpoint: WebhookEndpoint, now: datetime) -> list[str]:
    """Those that sign now, the new one first."""
    salts = [endpoint.salt]
    if endpoint.old_until is not None and now < endpoint.old_until:
        salts.append(endpoint.old_salt)
    return [secret_of(settings.SECRET_KEY, salt) for salt in salts]


def new_salt() -> str:
    return secrets.token_hex(16)
