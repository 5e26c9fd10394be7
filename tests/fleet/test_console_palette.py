"""The command palette: pages by name, things by their exact ids, nothing of other tenants, and no table walked."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client, RequestFactory
from django.urls import reverse

from fleet.console import palette
from tests.fleet import rows
from tests.fleet.test_console import person, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]


_numbers = itertools.count(1)


def found(client: Client, term: str, **who: Any) -> list[tuple[str, str]]:
    user = person(client, f"u-{next(_numbers)}", **who)
    request = RequestFactory().get("/admin/search/", {"s": term})
    request.user = user
    return [(result.description, result.title) for result in palette.search(request, term.lower())]


def test_pages_are_found_by_a_part_of_their_name_by_whom_may_open_them(client: Client) -> None:
    assert found(client, "queue") == [("Operate", "Queue")]
    assert found(client, "health", group="fleet-viewer") == [("Operate", "Health evidence")]
    assert found(client, "dispatch a", group="fleet-operator") == [("Operate", "Dispatch a task")]
    assert found(client, "dispatch a", group="fleet-viewer") == []
    assert found(client, "users", group="fleet-admin") == []


def test_a_thing_is_found_by_its_exact_id_in_ones_own_tenants(client: Client) -> None:
    mine, theirs = rows.session("Ticket-7"), rows.session("Ticket-7", tenant="t2")
    job, worker = rows.item(mine), rows.worker()
    rows.item(theirs)
    who = {"group": "fleet-viewer", "tenants": ("t1",)}
    assert found(client, job.job_id, **who) == [("Work item", job.job_id)]
    assert found(client, "Ticket-7", **who) == [("Session of t1", "Ticket-7")]
    assert found(client, "Ticket-7") == [("Session of t1", "Ticket-7"), ("Session of t2", "Ticket-7")]
    assert found(client, worker.worker_id, **who) == [("Worker", worker.worker_id)]
    assert found(client, job.job_id[:-1], **who) == []
    assert found(client, job.job_id, group="fleet-admin", tenants=("t3",)) == []


def test_the_address_of_what_is_found_leads_to_it(client: Client) -> None:
    cache.clear()
    item = rows.item(rows.session("s"))
    person(client)
    shown = text(client.get(reverse("admin:search"), {"s": item.job_id, "extended": "1"}))
    assert reverse("admin:dispatch_workitem_change", args=[item.pk]) in shown


def test_a_search_takes_few_queries_whatever_is_asked(client: Client, django_assert_max_num_queries: Any) -> None:
    for term in ("a", "%", "orch-" + "0" * 32, "x" * 5000, "a b\0c", "host:1:agent-dispatch:0"):
        user = person(client, f"u-{next(_numbers)}", group="fleet-viewer", tenants=("t1",))
        request = RequestFactory().get("/admin/search/", {"s": term})
        request.user = user
        with django_assert_max_num_queries(4):
            assert len(palette.search(request, term)) <= palette.MOST
