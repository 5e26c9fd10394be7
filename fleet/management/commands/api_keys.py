"""`manage.py api_keys VERB`: who holds a key, a new one in its place, its end. `issue_api_key` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatch import wiring
from dispatch.access import Caller
from dispatch.clock import rfc3339
from dispatch.inputs import refusal
from dispatch.management.operator import EXIT_SHORT, AddVerb, Answer, OperatorCommand
from dispatch.management.tables import moment, table
from fleet.access import api_key_revoke, api_key_rotate, keys_of
from fleet.models import ApiKey


class Command(OperatorCommand):
    help = "The API keys. Exit 0: done; 1: it was revoked already; 2: a wrong call, or no store."

    def add_verbs(self, verb: AddVerb) -> None:
        verb("list", "the keys: what each may do, until when, and when it was last used", list_keys)
        revoke_one = verb("revoke", "close a key for good", revoke)
        revoke_one.add_argument("prefix", metavar="PREFIX", help="what `list` shows of it")

        rotate_one = verb("rotate", "a new key in place of one, which opens for a while still", rotate)
        rotate_one.add_argument("prefix", metavar="PREFIX", help="what `list` shows of it")
        rotate_one.add_argument(
            "--keep-hours", type=float, default=24, metavar="H", help="how long the old one still opens (default 24)"
        )

    def run(self, options: dict[str, Any]) -> int:
        wiring.refuse_vanished_store()
        return super().run(options)


def _body(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "prefix": key.prefix,
        "tenant": key.tenant,
        "scopes": list(key.scopes),
        "platform": key.platform,
        "state": key.ended or "open",
        "created_at": rfc3339(key.created_at),
        "expires_at": rfc3339(key.expires_at),
        "last_used_at": rfc3339(key.last_used_at),
        "revoked_at": rfc3339(key.revoked_at),
    }


def list_keys(caller: Caller, options: Mapping[str, Any]) -> Answer:
    found = [_body(key) for key in keys_of(caller)]
    rows = [
        (
            one["prefix"],
            one["name"],
            "every tenant" if one["platform"] else one["tenant"],
            " ".join(one["scopes"]),
            one["state"],
            moment(one["expires_at"]),
            moment(one["last_used_at"]),
        )
        for one in found
    ]
    return Answer(
        body={"keys": found}, text=table(("PREFIX", "NAME", "TENANT", "SCOPES", "STATE", "EXPIRES", "LAST USED"), rows)
    )


def revoke(caller: Caller, options: Mapping[str, Any]) -> Answer:
    key = _named(caller, options["prefix"])
    closed = api_key_revoke(key=key, caller=caller)
    key.refresh_from_db()
    text = f"{key} opens nothing any more." if closed else f"{key} was revoked already."
    return Answer(body=_body(key), text=text, code=0 if closed else EXIT_SHORT)


def rotate(caller: Caller, options: Mapping[str, Any]) -> Answer:
    """The last line is the new key, which is shown this once."""
    old = _named(caller, options["prefix"])
    made, text = api_key_rotate(key=old, caller=caller, keep_hours=options["keep_hours"])
    old.refresh_from_db()
    told = f"{old} opens until {moment(rfc3339(old.expires_at))}. In its place, shown once:"
    return Answer(body={"key": text, **_body(made), "instead_of": _body(old)}, text=f"{told}\n{text}")


def _named(caller: Caller, prefix: str) -> ApiKey:
    """By what people see of the key; nobody has all of it but its holder."""
    keys = list(keys_of(caller).filter(prefix=prefix)[:2])
    if len(keys) != 1:
        several = "is that of several keys; tell them apart in the console"
        raise refusal({"prefix": several if keys else "is that of no key; `api_keys list` shows them"})
    return keys[0]
