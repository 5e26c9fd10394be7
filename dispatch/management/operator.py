"""What the operator's commands share: who is calling, how an answer is printed, and what the exit code says."""

from __future__ import annotations

import getpass
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, InterfaceError, connection
from rest_framework.renderers import JSONRenderer

from dispatch import services
from dispatch.access import SCOPES, Caller
from dispatch.envelope import is_name
from dispatch.errors import DispatchError, JobNotFound, StoreUnavailable
from dispatch.inputs import refusal

EXIT_DONE = 0
EXIT_SHORT = 1  # it was done, and what came of it is not all that was asked for
EXIT_UNUSABLE = 2  # a wrong call, a wrong setting, or a store that cannot be read
EXIT_REFUSED = 3  # understood, and refused: not found, not retryable
EXIT_TIMED_OUT = 124
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """`body` is what REST would answer; `text` says the same to people."""

    body: Any
    text: str
    code: int = EXIT_DONE


Act = Callable[[Caller, Mapping[str, Any]], Answer]
AddVerb = Callable[[str, str, Act], CommandParser]


def as_json(body: Any) -> str:
    """The bytes that REST would send, as text."""
    return str(JSONRenderer().render(body).decode())


def number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    """An argument's number, for a field that takes no text. Raises Invalid."""
    try:
        return kind(text)
    except ValueError:
        raise refusal({name: "must be a number"}) from None


def operator(tenant: str | None) -> Caller:
    """Whoever is signed in on this host: who can read the store's address may do everything there is."""
    if tenant is not None and not is_name(tenant):
        raise refusal({"tenant": "must be 1 to 200 letters, digits and ._:@- characters"})
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        name = f"uid {os.getuid()}"
    return Caller(
        tenant=tenant or "", name=name, kind="command_line", scopes=frozenset(SCOPES), platform=tenant is None
    )


class GuardedCommand(BaseCommand, ABC):
    """A command whose failures are one sentence and a code, never a traceback. Its options have `json`."""

    requires_system_checks: list[str] = []
    exit_refused = EXIT_REFUSED

    @abstractmethod
    def run(self, options: dict[str, Any]) -> int:
        """Do it; answer the exit code."""

    def tell(self, line: str) -> None:
        """Print a line at once."""
        self.stdout.write(line)
        self.stdout.flush()

    def handle(self, *args: Any, **options: Any) -> None:
        code = self._guarded(options)
        if code:
            sys.exit(code)

    def _guarded(self, options: dict[str, Any]) -> int:
        try:
            return self.run(options)
        except DispatchError as error:
            return self._refuse(error, options)
        except (DatabaseError, InterfaceError) as error:
            setting = "AGENT_DATA_DIR" if connection.vendor == "sqlite" else "STATE_DB_URI"
            return self._refuse(
                StoreUnavailable(f"{setting}: the state store cannot be used now ({type(error).__name__})."), options
            )
        except KeyboardInterrupt:
            self.stderr.write("interrupted; what had been done stays done")
            return EXIT_INTERRUPTED
        except BrokenPipeError:  # whoever read us has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_DONE

    def _refuse(self, error: DispatchError, options: Mapping[str, Any]) -> int:
        if options["json"]:
            self.stdout.write(as_json(_refusal(error)))
        else:
            self.stderr.write(error.message)
            for field, problem in list(error.fields.items())[1:]:  # the message has the first
                self.stderr.write(f"{field} {problem}.")
        return EXIT_UNUSABLE if error.http_status == 400 or error.http_status >= 500 else self.exit_refused


class OperatorCommand(GuardedCommand):
    """A command of several verbs. Each verb is one act: read the arguments, call a service, answer."""

    @abstractmethod
    def add_verbs(self, verb: AddVerb) -> None:
        """Declare the verbs: `verb(name, help, act)` answers the verb's own parser."""

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

        def add(name: str, text: str, act: Act) -> CommandParser:
            own: CommandParser = verbs.add_parser(name, help=text, description=text)
            own.set_defaults(act=act)
            own.add_argument("--tenant", help="act as this tenant alone; without it as the platform, over all tenants")
            own.add_argument("--json", action="store_true", help="print exactly what the REST API would answer")
            return own

        self.add_verbs(add)

    def run(self, options: dict[str, Any]) -> int:
        answer: Answer = options["act"](operator(options["tenant"]), options)
        self.stdout.write(as_json(answer.body) if options["json"] else answer.text)
        return answer.code


def _refusal(error: DispatchError) -> dict[str, Any]:
    if isinstance(error, JobNotFound):
        return {"status": "not_found", "error": error.message}
    return services.error_body(error)
