"""Sessions by their ids, in some tenants or in all."""

from __future__ import annotations

import pytest

from sessions_app import selectors
from sessions_app.models import Session
from sessions_app.selectors import session_keys, with_status
from tests.fleet import rows

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def test_sessions_are_found_by_their_exact_ids_in_the_tenants_that_are_named() -> None:
    made = {
        (tenant, name): rows.session(name, tenant=tenant).pk
        for tenant in ("a", "b", "Ü", "b'c", "")
        for name in ("one", "two", "three")
    }
    ones = {pk for (_, name), pk in made.items() if name == "one"}
    assert set(session_keys(["one"], tenants=None)) == ones
    assert set(session_keys(["one", "two", "none"], tenants=["a", "b'c", "nobody"])) == {
        made[tenant, name] for tenant in ("a", "b'c") for name in ("one", "two")
    }
    assert set(session_keys(["three", "one"], tenants=None)) == {pk for (_, name), pk in made.items() if name != "two"}
    assert session_keys(["on"], tenants=None) == session_keys(["One"], tenants=None) == []


def test_of_no_id_of_no_tenant_and_of_an_empty_store_there_is_none() -> None:
    assert session_keys(["one"], tenants=None) == []
    rows.session("one")
    assert session_keys([], tenants=None) == []
    assert session_keys(["one"], tenants=[]) == []


def test_sessions_of_a_status_are_found_in_every_domain_and_also_where_there_are_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = {
        rows.session(f"p-{domain}", status="paused", metadata={"domain": domain}).pk for domain in ("a", "b", "Ü", "z")
    }
    rows.session("idle", metadata={"domain": "a"})
    assert set(with_status(Session.objects.all(), "paused").values_list("pk", flat=True)) == wanted
    monkeypatch.setattr(selectors, "MOST_DOMAINS", 2)
    assert set(with_status(Session.objects.all(), "paused").values_list("pk", flat=True)) == wanted
    assert not with_status(Session.objects.none(), "paused").exists()
