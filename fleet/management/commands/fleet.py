"""`manage.py fleet VERB`: watch and steer the fleet from a terminal, through the services that REST uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from django.core.management.base import CommandParser

from dispatch import gatekeeping, limiting, services, wiring
from dispatch.access import Caller
from dispatch.api.inputs import DrainBody, GateBody, LimitBody, LimitName, SteerBody
from dispatch.inputs import read_input, refusal
from dispatch.management.operator import EXIT_DONE, EXIT_SHORT, AddVerb, Answer, OperatorCommand, number
from dispatch.management.progress import Progress
from fleet.management import texts
from fleet.topology import TopologyQuery, health_read, topology_read


class Command(OperatorCommand):
    help = "Watch and steer the fleet. Exit 0: done; 1: not all of it; 2: a wrong call or no store; 3: refused."

    def add_verbs(self, verb: AddVerb) -> None:
        verb("health", "whether the fleet's numbers can be believed, and its totals; exit 1: not ready", health)
        page = verb("topology", "what runs where: a page of sessions, goals, workers", topology)
        page.add_argument("--limit", help="sessions of a page, 1 to 1000 (default 200)")
        page.add_argument("--offset", help="sessions to leave out before it, at most 100000")
        page.add_argument("--status", help="only sessions of this status")
        page.add_argument("--domain", help="only sessions of this domain")
        for name, text in (
            ("pause", "let running turns end and start nothing new in these sessions"),
            ("resume", "let these sessions go on, in order"),
            ("kill", "cancel what is queued and running in these sessions"),
        ):
            steered = verb(name, text, steer)
            steered.add_argument("session_ids", nargs="*", metavar="SESSION", help="session ids")
            steered.add_argument("--domain", help="instead of ids: all sessions of this domain")
            steered.add_argument(
                "--filter",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help="instead of ids: sessions of this status, domain or agent_name; all that are given must hold",
            )
            steered.add_argument("--reason", required=True, help="why, for the audit log")
        verb("gates", "which claims are paused, by whom and why", gates)
        for name, text, act in (
            ("shut", "let nothing of the fleet, a kind, an agent or a tenant be claimed; what runs goes on", shut),
            ("open", "let it be claimed again", let_open),
        ):
            gate = verb(name, text, act)
            gate.add_argument("scope", metavar="SCOPE", help="fleet, kind, agent or tenant")
            gate.add_argument("name", nargs="?", metavar="NAME", help="which kind, agent or tenant")
            gate.add_argument("--reason", required=True, help="why, for the audit log and for explain")
        verb("limits", "how many turns of which agents and tenants may run and start", limits)
        limited = _limit(verb("limit", "limit an agent or a tenant, in place of an earlier limit", limit))
        limited.add_argument("--max-running", help="turns at once, over all workers")
        limited.add_argument("--rate-per-s", help="turns that may start in a second, over all workers")
        limited.add_argument("--burst", help="how many may start at once after a rest (default: a second's worth)")
        _limit(verb("unlimit", "take the limit of an agent or a tenant away", unlimit))
        drained = verb("drain", "let a worker's consumer end its turns and claim nothing more", drain)
        drained.add_argument("worker_id", metavar="WORKER", help="worker id, as topology shows it")
        drained.add_argument("--reason", default="", help="why, for the audit log")


def _limit(parser: CommandParser) -> CommandParser:
    parser.add_argument("scope", metavar="SCOPE", help="agent or tenant")
    parser.add_argument("name", metavar="NAME", help="which agent or tenant")
    parser.add_argument("--reason", required=True, help="why, for the audit log")
    return parser


def health(caller: Caller, options: Mapping[str, Any]) -> Answer:
    body = health_read(caller=caller)
    code = EXIT_DONE if body.evidence.ready else EXIT_SHORT
    return Answer(body=body.model_dump(mode="json"), text=texts.health(body), code=code)


def topology(caller: Caller, options: Mapping[str, Any]) -> Answer:
    asked = {name: options[name] for name in ("limit", "offset", "status", "domain") if options[name] is not None}
    body = topology_read(caller=caller, query=read_input(TopologyQuery, asked))
    return Answer(body=body.model_dump(mode="json"), text=texts.topology(body))


def steer(caller: Caller, options: Mapping[str, Any]) -> Answer:
    """Pause, resume or kill. Exit 1: a session is not there, or the selection holds none."""
    chosen = {
        "session_ids": options["session_ids"] or None,
        "domain": options["domain"],
        "filter": _conditions(options["filter"]) or None,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    sent = read_input(SteerBody, {**given, "reason": options["reason"]})
    wiring.refuse_vanished_store()
    with Progress(sys.stderr, options["verb"]) as told:
        body = services.sessions_control(
            caller=caller,
            verb=options["verb"],
            session_ids=sent.session_ids,
            domain=sent.domain,
            filter=sent.filter.conditions() if sent.filter else None,
            reason=sent.reason,
            told=told,
        )
    short = "not_found" in body["counts"] or not body["results"]
    return Answer(body=body, text=texts.steered(options["verb"], body), code=EXIT_SHORT if short else EXIT_DONE)


def _conditions(given: list[str]) -> dict[str, str]:
    conditions: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in conditions:
            raise refusal({"filter": f"{text[:120]!r} must be NAME=VALUE, each name once"})
        conditions[name] = value
    return conditions


def gates(caller: Caller, options: Mapping[str, Any]) -> Answer:
    wiring.refuse_vanished_store()
    body = gatekeeping.gate_list(caller=caller)
    return Answer(body=body, text=texts.gates(body))


def shut(caller: Caller, options: Mapping[str, Any]) -> Answer:
    return _gate(gatekeeping.gate_shut, caller, options, "is paused", "was paused already")


def let_open(caller: Caller, options: Mapping[str, Any]) -> Answer:
    return _gate(gatekeeping.gate_open, caller, options, "goes on", "was not paused")


def _gate(act: Callable[..., Any], caller: Caller, options: Mapping[str, Any], applied: str, already: str) -> Answer:
    given = {name: options[name] for name in ("scope", "name", "reason") if options[name] is not None}
    sent = read_input(GateBody, given)
    wiring.refuse_vanished_store()
    body = act(caller=caller, scope=sent.scope, name=sent.name or "", reason=sent.reason)
    what = "the whole fleet" if sent.name is None else f"{sent.scope} {sent.name}"
    return Answer(body=body, text=f"claiming for {what} {applied if body['outcome'] == 'applied' else already}")


def limits(caller: Caller, options: Mapping[str, Any]) -> Answer:
    wiring.refuse_vanished_store()
    body = limiting.limit_list(caller=caller)
    return Answer(body=body, text=texts.limits(body["limits"]))


def limit(caller: Caller, options: Mapping[str, Any]) -> Answer:
    numbers = {"max_running": int, "rate_per_s": float, "burst": int}
    given = {name: number(name, options[name], kind) for name, kind in numbers.items() if options[name] is not None}
    named = {name: options[name] for name in ("scope", "name", "reason")}
    sent = read_input(LimitBody, {**named, **given})
    wiring.refuse_vanished_store()
    body = limiting.limit_set(caller=caller, **sent.model_dump())
    return Answer(body=body, text=texts.limits([body["limit"]]))


def unlimit(caller: Caller, options: Mapping[str, Any]) -> Answer:
    sent = read_input(LimitName, {name: options[name] for name in ("scope", "name", "reason")})
    wiring.refuse_vanished_store()
    body = limiting.limit_clear(caller=caller, **sent.model_dump())
    was = "is limited no more" if body["outcome"] == "applied" else "had no limit"
    return Answer(body=body, text=f"{sent.scope} {sent.name} {was}")


def drain(caller: Caller, options: Mapping[str, Any]) -> Answer:
    sent = read_input(DrainBody, {"reason": options["reason"]})
    wiring.refuse_vanished_store()
    body = services.worker_drain(caller=caller, worker_id=options["worker_id"], reason=sent.reason)
    return Answer(body=body, text=f"{options['worker_id']} claims nothing more, and ends when its turns have ended.")
