"""`manage.py webhooks VERB`: where the callbacks of a tenant's jobs may go."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction

from dispatch import services, wiring
from dispatch.access import Caller
from dispatch.clock import rfc3339, store_now
from dispatch.inputs import refusal
from dispatch.management.operator import AddVerb, Answer, OperatorCommand, number
from dispatch.management.tables import moment, table
from dispatch.webhooks import endpoints
from dispatch.webhooks.selectors import endpoint_list

MAX_KEEP_HOURS = 24 * 30


class Command(OperatorCommand):
    help = "Endpoints of callbacks. Exit 0: done; 2: a wrong call or no store; 3: refused."

    def add_verbs(self, verb: AddVerb) -> None:
        verb("list", "the endpoints", list_endpoints)
        for name, text, act in (
            ("add", "let jobs of a tenant name this address, or one below it; the last line is its secret", add),
            ("rotate", "give it a new secret, the last line; the old one signs as well for a while", rotate),
            ("remove", "take it away, with what was still to be sent there", remove),
        ):
            steered = verb(name, text, act)
            steered.add_argument("url", metavar="URL", help="an https:// address")
            if name == "rotate":
                steered.add_argument("--keep-hours", default="24", help="how long the old one signs (default 24)")

    def run(self, options: dict[str, Any]) -> int:
        wiring.refuse_vanished_store()
        return super().run(options)


def _tenant(caller: Caller) -> str:
    if not caller.tenant:
        raise refusal({"tenant": "is missing: --tenant says whose endpoint it is"})
    return caller.tenant


def _audit(caller: Caller, verb: str, url: str) -> None:
    services.audit(caller, verb, "webhook", url[:200], tenant=caller.tenant, result="applied")


def list_endpoints(caller: Caller, options: Mapping[str, Any]) -> Answer:
    now = store_now()
    found = [
        {
            "tenant": one.tenant,
            "url": one.url,
            "created_at": rfc3339(one.created_at),
            "old_secret_until": rfc3339(one.old_until) if one.old_until and one.old_until > now else None,
        }
        for one in endpoint_list(tenant=caller.scope_tenant)
    ]
    rows = [(one["tenant"], one["url"], moment(one["created_at"]), moment(one["old_secret_until"])) for one in found]
    return Answer(
        body={"endpoints": found}, text=table(("TENANT", "URL", "CREATED", "OLD SECRET UNTIL"), rows, cut=None)
    )


def add(caller: Caller, options: Mapping[str, Any]) -> Answer:
    tenant = _tenant(caller)
    with transaction.atomic():
        endpoint, secret = endpoints.endpoint_add(tenant=tenant, url=options["url"])
        _audit(caller, "add", endpoint.url)
    text = f"Jobs of {tenant} may name {endpoint.url}, and what lies below it. Its secret is:\n{secret}"
    return Answer(body={"tenant": tenant, "url": endpoint.url, "secret": secret}, text=text)


def rotate(caller: Caller, options: Mapping[str, Any]) -> Answer:
    tenant, hours = _tenant(caller), number("keep_hours", options["keep_hours"], float)
    if not 0 <= hours <= MAX_KEEP_HOURS:
        raise refusal({"keep_hours": f"must be a number of hours from 0 to {MAX_KEEP_HOURS}"})
    with transaction.atomic():
        secret = endpoints.endpoint_rotate(tenant=tenant, url=options["url"], keep=timedelta(hours=hours))
        _audit(caller, "rotate", options["url"])
    text = f"For {hours:g} hours both secrets sign. The new one is:\n{secret}"
    return Answer(body={"tenant": tenant, "url": options["url"], "secret": secret}, text=text)


def remove(caller: Caller, options: Mapping[str, Any]) -> Answer:
    tenant = _tenant(caller)
    with transaction.atomic():
        endpoints.endpoint_remove(tenant=tenant, url=options["url"])
        _audit(caller, "remove", options["url"])
    return Answer(body={"tenant": tenant, "url": options["url"]}, text=f"{options['url']} is no endpoint any more.")
