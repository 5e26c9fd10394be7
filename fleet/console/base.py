"""What every page of the console shares: nothing is edited, only the reader's tenants are seen, no table is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from django.contrib.admin import ShowFacets, SimpleListFilter
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from fleet.console.content import note_reader
from fleet.console.labels import duration
from fleet.console.roles import staff_of


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than CAP: a range of an index is read, never a whole table."""

    CAP = 10_000

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: self.CAP].count())


class FleetAdmin(ModelAdmin):  # unfold is untyped
    """A read-only page of one model. Another tenant's object is 404; who is in no group of the fleet sees none."""

    tenant_path: ClassVar[str | None] = "tenant"  # None: rows belong to no tenant
    empty_words: ClassVar[str] = "Nothing here yet."  # of a list that nothing narrows

    refresh_s: ClassVar[int] = 15  # of the list, while nobody is busy with it

    list_before_template = "fleet/list_head.html"
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_per_page = 25
    list_max_show_all = 25
    list_disable_select_all = True
    actions: ClassVar[list[str]] = []

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        tenants = staff_of(request).tenants
        if tenants is None or self.tenant_path is None:
            return rows
        return rows.filter(**{f"{self.tenant_path}__in": tenants})

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Read once a request: the page's own parts and Django's ask for the same one."""
        found: dict[str, Any] = request.__dict__.setdefault("_fleet_objects", {})
        if object_id not in found:
            found[object_id] = super().get_object(request, object_id, from_field)
        if found[object_id] is None:
            raise Http404
        note_reader(request, found[object_id])
        return found[object_id]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (self.found(request, queryset, term) if term else queryset), False

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """The rows that somebody looks for; pages of long tables look for exact ids alone."""
        rows: QuerySet[Any] = super().get_search_results(request, queryset, term)[0]
        return rows

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        listed = super().get_changelist_instance(request)
        for row in listed.result_list:
            note_reader(request, row)
        return listed

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return staff_of(request).may_view

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return staff_of(request).may_operate

    def has_administer_permission(self, request: HttpRequest) -> bool:
        return staff_of(request).may_administer

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """What the templates around the object's fields show besides them."""
        return {}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Refuse an action that this person is not offered; Django would show the list as if nothing had been asked."""
        if request.method == "POST" and request.POST.get("action", "") not in self.get_actions(request):
            raise PermissionDenied
        return super().changelist_view(request, extra_context)  # type: ignore[no-any-return]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            return super().change_view(request, object_id, form_url, extra_context)  # type: ignore[no-any-return]
        obj = self.get_object(request, object_id)
        context = {**(extra_context or {}), **self.page_context(request, obj)}
        return super().change_view(request, object_id, form_url, context)  # type: ignore[no-any-return]


class FieldFilter(SimpleListFilter):
    """Rows whose field has one of the values named here: the table is never read for them."""

    values: Sequence[tuple[str, str]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return self.values

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.parameter_name or "": self.value()}) if self.value() else queryset


C = TypeVar("C", bound=Callable[..., Any])


def column(title: str, *, variants: dict[str, str] | None = None) -> Callable[[C], C]:
    """Name a column. With variants its text is a coloured label: the colour is that of the text."""

    def named(function: C) -> C:
        function.short_description = title  # type: ignore[attr-defined]  # what Django's admin reads
        if variants is not None:
            function.label = variants  # type: ignore[attr-defined]  # what unfold reads
        return function

    return named


def time_column(field: str, title: str) -> Callable[[Any, Any], SafeString | str]:
    """A column of times, as `moment` writes them."""

    @column(title)
    def shown(self: Any, obj: Any) -> SafeString | str:
        return moment(getattr(obj, field))

    return shown


def moment(at: datetime | None) -> SafeString | str:
    """How long ago, with the exact time in UTC behind it."""
    if at is None:
        return "–"
    seconds = (timezone.now() - at).total_seconds()
    words = f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), exact, words)
