"""API keys: making one, and telling who holds one."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.utils import Error as StoreError
from django.utils import timezone

from dispatch.access import Caller
from dispatch.envelope import NAME
from dispatch.errors import Forbidden, Invalid
from dispatch.inputs import refusal
from dispatch.services import audit
from fleet.models import ApiKey

PREFIX = "fs_"
SHOWN = 11  # characters of a key that people may see
USED_EVERY = timedelta(minutes=1)
MAX_KEY = 200
MAX_DAYS = 36_500
MAX_KEEP_HOURS = 24 * 30
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")

log = logging.getLogger(__name__)


def api_key_create(
    *, name: str, tenant: str, scopes: Iterable[str], platform: bool = False, expires_days: int | None = None
) -> tuple[ApiKey, str]:
    """Make a key and answer it with its text, which is shown this once: only its digest is kept.

    Raise Invalid, naming the field, for an empty name, a missing tenant, no or unknown scopes, and expiry under a day.
    """
    wanted = sorted(set(scopes), key=str)
    wrong = {}
    if not name.strip() or len(name) > 200:
        wrong["name"] = "must be 1 to 200 characters"
    if not re.fullmatch(NAME, tenant):
        wrong["tenant"] = "must be 1 to 200 letters, digits and ._:@- characters"
    if not wanted or not set(wanted) <= set(ApiKey.SCOPES):
        wrong["scopes"] = f"must be one or more of {', '.join(ApiKey.SCOPES)}"
    if expires_days is not None and not 1 <= expires_days <= MAX_DAYS:
        wrong["expires_days"] = f"must be 1 to {MAX_DAYS}"
    if wrong:
        first, problem = next(iter(wrong.items()))
        raise Invalid(f"The request is not valid: {first} {problem}.", fields=wrong)
    now = timezone.now()
    return _new_key(
        name=name.strip(),
        tenant=tenant,
        scopes=wanted,
        platform=platform,
        created_at=now,
        expires_at=None if expires_days is None else now + timedelta(days=expires_days),
    )


def api_key_issue(
    *, caller: Caller, name: str, tenant: str, scopes: Iterable[str], platform: bool, expires_days: int | None
) -> tuple[ApiKey, str]:
    """Make a key for somebody in a tenant that the caller sees, as `api_key_create` does. Audited.

    Raises Forbidden for another tenant, and for a platform key unless the caller is of the platform.
    """
    if platform and not caller.platform:
        raise Forbidden("A platform key sees every tenant; making one takes somebody who sees them all.")
    if not caller.sees(tenant):
        raise Forbidden("A key is made in a tenant of one's own.")
    with transaction.atomic():
        key, text = api_key_create(
            name=name, tenant=tenant, scopes=scopes, platform=platform, expires_days=expires_days
        )
        _audit(caller, "create", key)
    return key, text


def keys_of(caller: Caller) -> QuerySet[ApiKey]:
    """The keys that this caller sees, newest first."""
    keys = ApiKey.objects.order_by("-pk")
    return keys if caller.scope_tenant is None else keys.filter(tenant=caller.scope_tenant)


def api_key_revoke(*, key: ApiKey, caller: Caller | None = None) -> bool:
    """Close the key for good; False when it was closed already. Audited when somebody is named."""
    with transaction.atomic():
        closed = bool(ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()))
        if closed and caller is not None:
            _audit(caller, "revoke", key)
    return closed


def api_key_rotate(*, key: ApiKey, caller: Caller, keep_hours: float) -> tuple[ApiKey, str]:
    """Make a key that may what this one may, and let this one end so many hours later. Audited.

    Answer the new key and its text, which is shown this once. It expires when the old one would have.
    Raises Invalid when the old one opens nothing any more, and when `keep_hours` is not 0 to 720.
    """
    if not 0 <= keep_hours <= MAX_KEEP_HOURS:
        raise refusal({"keep_hours": f"must be 0 to {MAX_KEEP_HOURS}"})
    with transaction.atomic():
        old = ApiKey.objects.select_for_update().get(pk=key.pk)
        if old.ended:
            raise Invalid(f"{old} opens nothing any more; make a new one.", fields={"key": f"is {old.ended}"})
        now = timezone.now()
        made, text = _new_key(
            name=old.name,
            tenant=old.tenant,
            scopes=old.scopes,
            platform=old.platform,
            created_at=now,
            expires_at=old.expires_at,
        )
        ends = now + timedelta(hours=keep_hours)
        old.expires_at = ends if old.expires_at is None else min(ends, old.expires_at)
        old.save(update_fields=["expires_at"])
        _audit(caller, "rotate", old)
        _audit(caller, "create", made)
    return made, text


def _new_key(**facts: Any) -> tuple[ApiKey, str]:
    """The row, which has a digest alone, and the key's text."""
    text = PREFIX + secrets.token_urlsafe(32)
    return ApiKey.objects.create(prefix=text[:SHOWN], digest=_digest(text), **facts), text


def _audit(caller: Caller, verb: str, key: ApiKey) -> None:
    """The key by its number and what people see of it."""
    audit(caller, verb, "api_key", f"{key.pk}:{key.prefix}", tenant=key.tenant, reason=key.name, result="applied")


def api_key_authenticate(text: str, *, request_id: str = "") -> Caller | None:
    """The caller that holds this key; None when it is unknown, expired or revoked, or has no tenant."""
    if not text.startswith(PREFIX) or len(text) > MAX_KEY:
        return None
    key = ApiKey.objects.filter(digest=_digest(text)).first()
    now = timezone.now()
    if key is None or key.ended or not key.tenant:
        return None
    if key.last_used_at is None or key.last_used_at <= now - USED_EVERY:
        _note_use(key, now)
    return Caller(
        tenant=key.tenant,
        name=key.name,
        kind="api_key",
        scopes=frozenset(key.scopes),
        platform=key.platform,
        key_id=key.pk,
        request_id=request_id,
    )


def request_id_from(header: str | None) -> str:
    """The caller's own X-Request-Id when it is a plain word, else a new one."""
    return header if header and REQUEST_ID.fullmatch(header) else uuid.uuid4().hex


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _note_use(key: ApiKey, now: datetime) -> None:
    """Write the time of use if that takes no waiting: another request is writing it, or the store is busy, else."""
    try:
        if connection.features.has_select_for_update_skip_locked:
            with transaction.atomic():
                free = ApiKey.objects.select_for_update(skip_locked=True).filter(pk=key.pk).values_list("pk", flat=True)
                if list(free):
                    ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
        else:
            with _no_waiting():
                ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
    except StoreError as error:
        log.info("time of use of an API key not written", extra={"key_id": key.pk, "error": type(error).__name__})


@contextmanager
def _no_waiting() -> Iterator[None]:
    """SQLite has one write lock for the whole file; give up at once while another holds it."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        (before,) = cursor.fetchone()
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(before)}")
