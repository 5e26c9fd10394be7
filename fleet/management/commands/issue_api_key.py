"""`manage.py issue_api_key NAME --tenant T --scope read [--scope dispatch] [--scope operate]`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from dispatch.errors import Invalid
from fleet.access import api_key_create
from fleet.models import ApiKey


class Command(BaseCommand):
    help = "Make an API key. The last line of output is the key alone; it is not shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="who will use the key")
        parser.add_argument("--tenant", default="", help="the tenant that the key acts for")
        parser.add_argument("--scope", action="append", choices=ApiKey.SCOPES, default=[], help="may be repeated")
        parser.add_argument("--platform", action="store_true", help="the key sees every tenant")
        parser.add_argument("--expires-days", type=int, help="days until the key stops working; default: never")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["tenant"]:
            raise CommandError("--tenant is missing: a key acts for one tenant, also with --platform.")
        if not options["scope"]:
            raise CommandError(f"--scope is missing: give one or more of {', '.join(ApiKey.SCOPES)}.")
        try:
            key, text = api_key_create(
                name=options["name"],
                tenant=options["tenant"],
                scopes=options["scope"],
                platform=options["platform"],
                expires_days=options["expires_days"],
            )
        except Invalid as error:
            raise CommandError(error.message) from error
        except DatabaseError as error:
            raise CommandError("The state store cannot be written; run migrate, or see that it is there.") from error
        until = f"expires {key.expires_at:%Y-%m-%d}" if key.expires_at else "does not expire"
        reach = "every tenant" if key.platform else f"tenant {key.tenant}"
        self.stdout.write(f"Key {key} for {reach}, scopes {', '.join(key.scopes)}, {until}. It is not shown again:")
        self.stdout.write(text)
