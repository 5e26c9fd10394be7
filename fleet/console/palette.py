"""What the command palette finds: pages by their name, and one thing by its exact id. No table is walked for it."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest
from django.urls import reverse
from unfold.dataclasses import SearchResult

from dispatch.envelope import is_job_id, is_name
from dispatch.models import DispatchWorker, WorkItem
from fleet.console.nav import UNFOLD
from fleet.console.roles import Staff, staff_of
from fleet.selectors import scoped
from sessions_app.models import Session
from sessions_app.selectors import session_keys

MOST = 20
SAME_NAME = 5  # sessions of that name in several tenants


def search(request: HttpRequest, term: str) -> list[SearchResult]:
    """Unfold's callback. It is given the term in small letters; ids are as they are."""
    staff, asked = staff_of(request), request.GET.get("s", term).replace("\0", "").strip()
    if not staff.may_view or not asked:
        return []
    return [*_pages(request, asked), *_exact(staff, asked)][:MOST]


def _pages(request: HttpRequest, asked: str) -> Iterator[SearchResult]:
    """Those of the sidebar that this person may open. Models are found by Unfold itself."""
    for group in UNFOLD["SIDEBAR"]["navigation"]:
        for item in group["items"]:
            if asked.lower() in item["title"].lower() and item["allowed"](request):
                yield SearchResult(
                    title=item["title"], description=group["title"], link=str(item["link"]), icon=item["icon"]
                )


def _exact(staff: Staff, asked: str) -> Iterator[SearchResult]:
    if is_job_id(asked):
        for pk in scoped(WorkItem.objects.filter(job_id=asked), staff.tenants).values_list("pk", flat=True):
            yield _found(asked, "Work item", "admin:dispatch_workitem_change", pk, "assignment")
    if is_name(asked):
        sessions = Session.objects.filter(pk__in=session_keys([asked], tenants=staff.tenants)).order_by("pk")
        for pk, tenant in sessions.values_list("pk", "tenant")[:SAME_NAME]:
            yield _found(asked, f"Session of {tenant}", "admin:sessions_app_session_change", pk, "forum")
    for pk in DispatchWorker.objects.filter(worker_id=asked[:300]).values_list("pk", flat=True):
        yield _found(asked, "Worker", "admin:dispatch_dispatchworker_change", pk, "dns")


def _found(title: str, description: str, page: str, pk: int, icon: str) -> SearchResult:
    return SearchResult(title=title, description=description, link=reverse(page, args=[pk]), icon=icon)
