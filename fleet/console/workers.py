"""The page of the workers, and the one thing that may be done to them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dispatch import services
from dispatch.errors import WorkerNotFound
from dispatch.models import DispatchWorker
from fleet.console.base import FleetAdmin, column, moment, time_column
from fleet.console.forms import ReasonForm, reason_in, user_id_of
from fleet.console.labels import VARIANTS, duration
from fleet.console.roles import caller_over_all, staff_of
from fleet.selectors import MAX_WORKERS

AGENTS = 4  # named in the list


class StateFilter(SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("live", "live"), ("late", "late"), ("draining", "draining")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        heard = timezone.now() - timedelta(seconds=settings.FLEETSITE.worker_stale_s)
        if self.value() == "late":
            return queryset.filter(last_heartbeat__lt=heard)
        if self.value() in ("live", "draining"):
            return queryset.filter(last_heartbeat__gte=heard, draining=self.value() == "draining")
        return queryset


class DispatchWorkerAdmin(FleetAdmin):
    """Consumers as they last reported; the detail lists what runs there, of the reader's tenants.

    Workers serve every tenant, so only who sees every tenant may drain them.
    """

    tenant_path = None
    empty_words = "No worker has reported. Start one: manage.py run_dispatch_worker"
    change_form_outer_after_template = "fleet/worker_runs.html"
    list_display = ("worker_id", "host", "state_label", "beat_mark", "slots", "runs_agents", "version_mark", "up")
    list_filter = (StateFilter,)
    search_fields = ("worker_id",)
    search_help_text = "Host, or how a worker id begins"
    refresh_s = 5
    ordering = ("last_heartbeat",)  # the silent ones first
    action_form = ReasonForm
    actions: ClassVar[list[str]] = ["drain_workers"]
    fields = (
        "worker_id", "host", "pid", "state_label", "beat", "slots", "stuck", "agents", "kinds",
        "queue_backend", "version", "up",
    )  # fmt: skip

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(Q(worker_id__startswith=term) | Q(host=term))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        listed = super().get_changelist_instance(request)
        versions = Counter(DispatchWorker.objects.values_list("version", flat=True)[:MAX_WORKERS])
        usual = versions.most_common(1)[0][0] if versions else ""
        for worker in listed.result_list:
            worker.usual_version = usual
        return listed

    def has_drain_permission(self, request: HttpRequest) -> bool:
        return staff_of(request).may_steer_all

    @admin.action(description="Drain", permissions=["drain"])
    def drain_workers(self, request: HttpRequest, queryset: QuerySet[DispatchWorker]) -> None:
        if not self.has_drain_permission(request):
            raise PermissionDenied
        if request.POST.get("select_across") == "1":
            self.message_user(request, "Choose the workers themselves; all that match is not taken.", messages.ERROR)
            return
        outcomes: Counter[str] = Counter()
        reason = reason_in(request)
        for worker in queryset.order_by("pk"):
            try:
                services.worker_drain(caller=caller_over_all(request), worker_id=worker.worker_id, reason=reason)
            except WorkerNotFound:  # it has left meanwhile
                outcomes["gone"] += 1
                continue
            outcomes["draining"] += 1
            note = "Drain" + (f" ({reason})" if reason else "")
            LogEntry.objects.log_actions(user_id_of(request), [worker], CHANGE, change_message=note, single_object=True)
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        self.message_user(request, f"Drain: {said}.", messages.INFO)

    def page_context(self, request: HttpRequest, obj: DispatchWorker) -> dict[str, Any]:
        staff = staff_of(request)
        seen = [run for run in obj.active_sessions if staff.sees(run["tenant"])]
        return {"fleet_runs": seen, "fleet_runs_hidden": len(obj.active_sessions) - len(seen)}

    @column("State", variants=VARIANTS)
    def state_label(self, obj: DispatchWorker) -> str:
        if timezone.now() - obj.last_heartbeat > timedelta(seconds=settings.FLEETSITE.worker_stale_s):
            return "late"
        return "draining" if obj.draining else "live"

    beat = time_column("last_heartbeat", "Heartbeat")

    @column("Heartbeat")
    def beat_mark(self, obj: DispatchWorker) -> SafeString | str:
        """How long ago; in the last third of what it may be silent a warning, and then how long it has been late."""
        silent, most = (timezone.now() - obj.last_heartbeat).total_seconds(), settings.FLEETSITE.worker_stale_s
        left, heard = most - silent, moment(obj.last_heartbeat)
        if left < 0:
            return format_html('{} <span class="fc-text-danger">late by {}</span>', heard, duration(-left))
        if left < most / 3:
            return format_html('{} <span class="fc-text-warning">late in {}</span>', heard, duration(left))
        return heard

    @column("Agents")
    def runs_agents(self, obj: DispatchWorker) -> str:
        more = len(obj.agents) - AGENTS
        return ", ".join(obj.agents[:AGENTS]) + (f" and {more} more" if more > 0 else "")

    @column("Version")
    def version_mark(self, obj: DispatchWorker) -> SafeString | str:
        """One that differs from that of most is marked."""
        usual = getattr(obj, "usual_version", obj.version)
        if obj.version == usual:
            return obj.version
        return format_html('<span class="fc-text-warning">{}, others {}</span>', obj.version, usual)

    @column("Slots")
    def slots(self, obj: DispatchWorker) -> str:
        return f"{len(obj.active_sessions)} of {obj.capacity}"

    up = time_column("started_at", "Up since")
