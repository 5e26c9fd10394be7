"""The pages of callbacks: what is told of jobs and to whom, what was not taken, and sending it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dispatch.access import Caller
from dispatch.models import WebhookDelivery, WebhookEndpoint, WorkItem
from dispatch.webhooks.selectors import address_of
from dispatch.webhooks.services import redeliver
from fleet.console.base import FieldFilter, FleetAdmin, column, moment, time_column
from fleet.console.labels import VARIANTS, Label, label
from fleet.console.operations import ActingAdmin, offer
from fleet.console.verbs import Verb, each


def _send_again(caller: Caller, delivery: WebhookDelivery, reason: str) -> str:
    redeliver(caller=caller, job_id=delivery.work_item.job_id, delivery_id=delivery.delivery_id, reason=reason)
    return "applied"


SEND_AGAIN = Verb(
    name="redeliver",
    title="Send again",
    says="Each is sent now, under its own id and with all its tries. Who has taken it already drops it by that id.",
    act=each(_send_again),
    applies=lambda delivery: True,
    expects=lambda delivery: f"{delivery.state}-{delivery.tries}",
)


MAX_SHOWN = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class CallbackLine:
    """A callback on the page of its job."""

    href: str
    event: str
    label: Label
    address: str
    tries: int
    answered: str
    made: SafeString | str


def callbacks_of(item: WorkItem) -> list[CallbackLine]:
    """What was, or is to be, told of a job, oldest first."""
    found = WebhookDelivery.objects.filter(work_item=item).select_related("watch").order_by("event_id", "pk")
    return [
        CallbackLine(
            href=reverse("admin:dispatch_webhookdelivery_change", args=[one.pk]),
            event=one.event,
            label=label(one.state),
            address=address_of(one.watch.url),
            tries=one.tries,
            answered=_answered(one),
            made=moment(one.created_at),
        )
        for one in found[:MAX_SHOWN]
    ]


def _answered(delivery: WebhookDelivery) -> str:
    if delivery.last_error:
        return delivery.last_error
    return "–" if delivery.last_status is None else str(delivery.last_status)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


class StateFilter(FieldFilter):
    title = parameter_name = "state"
    values = tuple((state, state) for state in WebhookDelivery.STATES)


class CallbackAdmin(ActingAdmin):
    """Deliveries of callbacks, newest first. Sending one again goes through the service, as REST does."""

    noun = ("callback", "callbacks")
    name_field = "delivery_id"
    tenant_path = "work_item__tenant"
    empty_words = "No callback yet. A job that names a callback_url is told of here."
    verbs: ClassVar[dict[str, Verb]] = {"send_again": SEND_AGAIN}
    send_again = offer("send_again", SEND_AGAIN)
    actions: ClassVar[list[str]] = list(verbs)
    list_display = ("short_id", "event", "state_label", "short_job", "short_address", "tries", "answered", "made")
    list_select_related = ("work_item", "watch")
    list_display_links = ("short_id",)
    list_filter = (StateFilter,)
    search_fields = ("delivery_id",)
    search_help_text = "Exact id of a callback or a job"
    change_form_outer_before_template = "fleet/callback.html"
    fields = (
        "delivery_id", "event", "state_label", "job", "wrapped_address", "tries", "answered", "made", "next_try",
        "taken", "wrapped_body",
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        named: QuerySet[Any] = rows.annotate(status=F("state"), tenant=F("work_item__tenant"))
        return named

    def get_ordering(self, request: HttpRequest) -> list[str]:
        """Those of one state are few among many, and their index has the time."""
        return ["-created_at", "-pk"] if request.GET.get("state") else ["-pk"]

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Exact only: a part of an id would be looked for in every row."""
        field = "delivery_id" if term.startswith("msg_") else "work_item__job_id"
        return queryset.filter(**{field: term})

    def page_context(self, request: HttpRequest, obj: WebhookDelivery) -> dict[str, Any]:
        return {
            "fleet_buttons": self.buttons(request, obj),
            "fleet_pk": obj.pk,
            "fleet_list_href": reverse("admin:dispatch_webhookdelivery_changelist"),
            "fleet_state": self._words(obj),
        }

    @staticmethod
    def _words(delivery: WebhookDelivery) -> str:
        if delivery.state == WebhookDelivery.DELIVERED:
            return "It was taken."
        if delivery.state == WebhookDelivery.DEAD:
            return "Nobody took it, and it is not tried any more."
        return "It is tried until somebody takes it, or its tries are used up."

    @column("State", variants=VARIANTS)
    def state_label(self, obj: WebhookDelivery) -> str:
        return obj.state

    @column("Callback")
    def short_id(self, obj: WebhookDelivery) -> str:
        return _cut(obj.delivery_id, 12)

    @column("Job")
    def short_job(self, obj: WebhookDelivery) -> SafeString:
        href, job_id = reverse("admin:dispatch_workitem_change", args=[obj.work_item_id]), obj.work_item.job_id
        return format_html('<a href="{}"><code title="{}">{}</code></a>', href, job_id, _cut(job_id, 13))

    @column("Job")
    def job(self, obj: WebhookDelivery) -> SafeString:
        href = reverse("admin:dispatch_workitem_change", args=[obj.work_item_id])
        return format_html('<a href="{}"><code>{}</code></a>', href, obj.work_item.job_id)

    @column("Address")
    def short_address(self, obj: WebhookDelivery) -> str:
        return _cut(self.address(obj), 48)

    @column("Address")
    def address(self, obj: WebhookDelivery) -> str:
        return address_of(obj.watch.url)

    @column("Address")
    def wrapped_address(self, obj: WebhookDelivery) -> SafeString:
        return format_html('<span class="fc-agent-text">{}</span>', self.address(obj))

    @column("Body")
    def wrapped_body(self, obj: WebhookDelivery) -> SafeString:
        return format_html('<span class="fc-agent-text">{}</span>', obj.body)

    @column("Last answer")
    def answered(self, obj: WebhookDelivery) -> str:
        return _answered(obj)

    made = time_column("created_at", "Made")
    next_try = time_column("due_at", "Next try")
    taken = time_column("delivered_at", "Taken")


class EndpointAdmin(FleetAdmin):
    """Where callbacks of a tenant may go. The command line alone makes and changes one: its answer is the secret."""

    empty_words = "No endpoint. Make one: manage.py webhooks add URL --tenant NAME."
    list_display = ("url", "tenant", "made", "old_secret")
    ordering = ("tenant", "url")
    search_fields = ("url",)
    search_help_text = "Exact address"
    fields = list_display

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(url=term)

    made = time_column("created_at", "Made")

    @column("Old secret ends")
    def old_secret(self, obj: WebhookEndpoint) -> SafeString | str:
        return moment(obj.old_until if obj.old_until and obj.old_until > timezone.now() else None)
