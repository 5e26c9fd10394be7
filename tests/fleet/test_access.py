"""The life of an API key."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import time
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from dispatch.errors import Invalid
from fleet.access import api_key_authenticate, api_key_create, api_key_revoke, request_id_from
from fleet.models import ApiKey
from sessions_app.models import AuditEntry
from tests.fleet import rows

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def make(**more: object) -> tuple[ApiKey, str]:
    return api_key_create(**{"name": "ci", "tenant": "t1", "scopes": ["read"], **more})  # type: ignore[arg-type]


def test_only_the_digest_of_a_key_is_kept() -> None:
    key, text = make()
    assert text.startswith("fs_")
    assert len(text) == 46
    assert key.digest == hashlib.sha256(text.encode()).hexdigest()
    assert text.startswith(key.prefix)
    assert len(key.prefix) < 12


def test_a_key_tells_who_is_calling() -> None:
    key, text = make(scopes=["read", "operate"], platform=True)
    caller = api_key_authenticate(text, request_id="r-1")
    assert caller is not None
    assert (caller.tenant, caller.kind, caller.key_id, caller.platform) == ("t1", "api_key", key.pk, True)
    assert (caller.may("operate"), caller.may("dispatch"), caller.request_id) == (True, False, "r-1")


@pytest.mark.parametrize("text", ["", "fs_", "nonsense", "fs_" + "x" * 43, "fs_\udcff", "fs_\x00", "fs_" + "é" * 43])
def test_an_unknown_key_opens_nothing(text: str) -> None:
    assert api_key_authenticate(text) is None


def test_an_expired_key_opens_nothing() -> None:
    key, text = make(expires_days=1)
    assert api_key_authenticate(text) is not None
    ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert api_key_authenticate(text) is None


def test_a_revoked_key_opens_nothing_and_revoking_again_is_harmless() -> None:
    key, text = make()
    assert api_key_revoke(key=key) is True
    assert api_key_revoke(key=key) is False
    assert api_key_authenticate(text) is None


def test_the_time_of_use_is_written_at_most_once_a_minute() -> None:
    key, text = make()
    api_key_authenticate(text)
    key.refresh_from_db()
    first = key.last_used_at
    assert first is not None
    api_key_authenticate(text)
    key.refresh_from_db()
    assert key.last_used_at == first
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=first - timedelta(minutes=2))
    api_key_authenticate(text)
    key.refresh_from_db()
    assert key.last_used_at is not None
    assert key.last_used_at >= first


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="one write lock for the whole file is SQLite's")
def test_a_key_is_read_at_once_while_another_process_holds_the_write_lock() -> None:
    key, text = make()
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert api_key_authenticate(text) is not None
        assert time.monotonic() - began < 2
    finally:
        other.execute("ROLLBACK")
        other.close()
    key.refresh_from_db()
    assert key.last_used_at is None
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        assert cursor.fetchone()[0] > 0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": " "}, "name"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": "a b"}, "tenant"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["read", "everything"]}, "scopes"),
        ({"expires_days": 0}, "expires_days"),
    ],
)
def test_a_wrong_wish_is_refused_by_its_field(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        make(**wrong)
    assert list(refusal.value.fields) == [field]
    assert not ApiKey.objects.exists()


def test_a_plain_request_id_is_kept_and_an_odd_one_replaced() -> None:
    assert request_id_from("abc-1.2:3_4") == "abc-1.2:3_4"
    for odd in (None, "", "a b", "x" * 101, "a\n", "é"):
        assert request_id_from(odd) != odd


def test_the_command_prints_the_key_alone_on_its_last_line() -> None:
    out = io.StringIO()
    call_command(
        "issue_api_key", "ci", "--tenant", "ops", "--scope", "read", "--scope", "operate", "--platform", stdout=out
    )
    text = out.getvalue().rstrip("\n").splitlines()[-1]
    caller = api_key_authenticate(text)
    assert caller is not None
    assert (caller.tenant, caller.platform, caller.scopes) == ("ops", True, frozenset({"read", "operate"}))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["ci", "--scope", "read"], "--tenant"),
        (["ci", "--scope", "read", "--platform"], "--tenant"),
        (["ci", "--tenant", "t1"], "--scope"),
        (["ci", "--tenant", "t 1", "--scope", "read"], "tenant"),
        (["ci", "--tenant", "t1", "--scope", "all"], "--scope"),
    ],
)
def test_the_command_refuses_what_no_key_may_be(arguments: list[str], word: str) -> None:
    with pytest.raises(CommandError, match=word):
        call_command("issue_api_key", *arguments)
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer \xe9\xff", "Basic abc", "bearer fs_x", "Bearer a b"]
)
def test_without_a_good_key_every_address_is_401(client: Client, header: str | None) -> None:
    for path in ("/api/fleet/health", "/api/fleet/topology", "/api/fleet/autoscale", "/metrics"):
        answer = client.get(path, headers={} if header is None else {"authorization": header})
        assert answer.status_code == 401, path
        assert answer["WWW-Authenticate"] == "Bearer"
        assert answer.json()["code"] == "unauthenticated"


def test_a_key_without_the_scope_is_403(client: Client) -> None:
    for path in ("/api/fleet/health", "/api/fleet/topology", "/api/fleet/autoscale", "/metrics"):
        answer = client.get(path, headers=rows.key("t1", "dispatch"))
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path


def test_the_keys_are_listed_without_themselves_and_one_is_revoked_by_its_prefix() -> None:
    key, text = api_key_create(name="ci", tenant="t1", scopes=["read"])
    other, _ = api_key_create(name="other", tenant="t2", scopes=["read"], platform=True, expires_days=1)
    assert api_key_authenticate(text) is not None
    out = io.StringIO()
    call_command("api_keys", "list", stdout=out)
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["PREFIX", other.prefix, key.prefix]
    assert text not in out.getvalue()
    assert "every tenant" in out.getvalue()
    out = io.StringIO()
    call_command("api_keys", "list", "--tenant", "t1", "--json", stdout=out)
    (shown,) = json.loads(out.getvalue())["keys"]
    assert (shown["prefix"], shown["state"], shown["scopes"], shown["expires_at"]) == (
        key.prefix,
        "open",
        ["read"],
        None,
    )
    assert shown["last_used_at"] is not None
    out = io.StringIO()
    call_command("api_keys", "revoke", key.prefix, stdout=out)
    assert "opens nothing any more" in out.getvalue()
    assert api_key_authenticate(text) is None
    entry = AuditEntry.objects.get(verb="revoke")
    assert (entry.actor_kind, entry.tenant, entry.object_id) == ("command_line", "t1", f"{key.pk}:{key.prefix}")


@pytest.mark.parametrize(("tenant", "code", "word"), [("t1", 1, "revoked already"), ("t2", 2, "is that of no key")])
def test_a_key_that_is_closed_or_another_tenants_is_not_revoked(tenant: str, code: int, word: str) -> None:
    key, _ = api_key_create(name="ci", tenant="t1", scopes=["read"])
    api_key_revoke(key=key)
    out, errors = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("api_keys", "revoke", key.prefix, "--tenant", tenant, stdout=out, stderr=errors)
    assert ended.value.code == code
    assert word in out.getvalue() + errors.getvalue()
    assert not AuditEntry.objects.exists()


def test_a_rotated_key_has_a_twin_and_opens_for_a_while_still() -> None:
    old, old_text = make(scopes=["read", "operate"], platform=True, expires_days=90)
    out = io.StringIO()
    call_command("api_keys", "rotate", old.prefix, "--keep-hours", "1", stdout=out)
    new_text = out.getvalue().splitlines()[-1]
    old.refresh_from_db()
    new = ApiKey.objects.exclude(pk=old.pk).get()
    assert (new.name, new.tenant, new.scopes, new.platform) == (old.name, old.tenant, old.scopes, old.platform)
    assert api_key_authenticate(new_text) is not None
    assert api_key_authenticate(old_text) is not None
    assert old.expires_at is not None
    assert new.expires_at is not None
    assert timedelta(minutes=59) < old.expires_at - timezone.now() < timedelta(minutes=61)
    assert new.expires_at - timezone.now() > timedelta(days=89), "it ends when the old one would have"
    verbs = AuditEntry.objects.filter(object_type="api_key").values_list("verb", flat=True)
    assert sorted(verbs) == ["create", "rotate"]
    assert new_text not in str(AuditEntry.objects.values_list())


def test_a_key_that_opens_nothing_is_not_rotated_and_nothing_is_made() -> None:
    key, _ = make()
    api_key_revoke(key=key)
    with pytest.raises(SystemExit) as ended:
        call_command("api_keys", "rotate", key.prefix, stderr=io.StringIO())
    assert ended.value.code == 2
    assert ApiKey.objects.count() == 1


@pytest.mark.parametrize("hours", ["-1", "721", "nan"])
def test_how_long_the_old_one_opens_is_bounded(hours: str) -> None:
    key, _ = make()
    with pytest.raises(SystemExit) as ended:
        call_command("api_keys", "rotate", key.prefix, "--keep-hours", hours, stderr=io.StringIO())
    assert ended.value.code == 2
    key.refresh_from_db()
    assert (key.expires_at, ApiKey.objects.count()) == (None, 1)
