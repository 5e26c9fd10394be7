"""Claim turns and run them."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connection

from dispatch import testing, wiring
from dispatch.errors import DispatchError, TaskQueueUnavailable
from dispatch.maintenance.upkeep import make_ticks
from dispatch.preflight import preflight
from dispatch.states import KINDS
from dispatch.worker.capacity import auto_capacity
from dispatch.worker.observed import LOOPBACK, observe
from dispatch.worker.process import WorkerProcess
from dispatch.worker.start import consumer_settings
from dispatch.worker_registry import DatabaseWorkerRegistry

EXIT_REFUSED = 2


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _max_capacity(text: str | None, *, least: int) -> int | None:
    if text is None:
        return None
    if text == "auto":
        return max(least, auto_capacity())
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) >= least):
        raise TaskQueueUnavailable(f"--max-capacity: must be auto, or a number from {least}, the capacity, to 99999")
    return int(text)


class Command(BaseCommand):
    help = "Claims turns from the queue and runs them until it is told to stop."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--workers", type=int, default=1, help="claim loops in this process (default 1)")
        parser.add_argument("--capacity", type=int, default=1, help="turns at once in each claim loop (default 1)")
        parser.add_argument(
            "--max-capacity",
            metavar="N|auto",
            help="grow to so many turns at once while work waits; default: --capacity",
        )
        parser.add_argument("--kinds", type=_names, default=None, help="serve only these kinds, separated by commas")
        parser.add_argument("--agents", type=_names, default=None, help="serve only these agents, separated by commas")
        parser.add_argument("--once", action="store_true", help="claim once, run what was claimed, exit")
        parser.add_argument("--drain", action="store_true", help="exit when nothing is claimable and nothing runs")
        parser.add_argument("--grace", type=float, default=30.0, help="seconds that turns may go on after SIGTERM")
        parser.add_argument("--metrics-port", type=int, default=None, help="serve Prometheus metrics on this port")
        parser.add_argument(
            "--metrics-address", default=LOOPBACK, help=f"serve them at this address (default {LOOPBACK})"
        )
        parser.add_argument("--no-maintenance", action="store_true", help="leave the ticks to other processes")

    def handle(self, *args: Any, **options: Any) -> None:
        if connection.in_atomic_block:
            # inside a test's transaction no other thread would see its rows
            testing.drain(limit=options["workers"] * options["capacity"] if options["once"] else None)
            return
        try:
            process = self._wire(options)
        except DispatchError as error:
            self.stderr.write(error.message)
            sys.exit(EXIT_REFUSED)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: process.signal())
        code = process.run()
        if code == 0:
            wiring.authority().close()
        wiring.tracer().close()
        # a run that does not listen holds its thread: the process ends without it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _wire(self, options: dict[str, Any]) -> WorkerProcess:
        config = wiring.config()
        os.environ[config.daemon_role[0]] = config.daemon_role[1]
        self._check(options)
        preflight()
        serves = wiring.serves(options["agents"], options["kinds"])
        if not serves.agents:
            known = ", ".join(wiring.registry().names())
            raise TaskQueueUnavailable(
                f"--agents: this process has none of these agents, but {known}; see AGENT_MODULES and AGENTS_FILE"
            )
        wiring.prepare(serves.agents)
        authority = wiring.authority()
        consumers = consumer_settings(
            options["workers"],
            host_label=config.worker_host_label,
            capacity=options["capacity"],
            serves=serves,
            ttl_s=config.claim_ttl_s,
            heartbeat_s=config.worker_heartbeat_s,
            max_capacity=_max_capacity(options["max_capacity"], least=options["capacity"]),
            once=options["once"],
            drain=options["drain"],
        )
        ticks = None
        if not options["no_maintenance"]:
            ticks = make_ticks(
                authority,
                holder=consumers[0].owner,
                tick_s=config.tick_s,
                stale_s=config.worker_stale_s,
                lock=wiring.leader_lock(),
            )
        return WorkerProcess(
            consumers,
            authority=authority,
            agents=wiring.registry(),
            store=wiring.turn_store(),
            registry=DatabaseWorkerRegistry(queue_backend=authority.transport.backend_name, checks=wiring.checks()),
            events=observe(
                options["metrics_port"],
                address=options["metrics_address"],
                consumers=len(consumers),
                backend=authority.transport.name,
                depth=authority.depth,
            ),
            # one that ends by itself takes what is claimable; it waits for no news
            listener=None if options["once"] or options["drain"] else authority.transport.listener(),
            renew_s=config.renew_interval_s,
            grace_s=options["grace"],
            housekeeping=ticks.look if ticks else None,
            tracer=wiring.tracer(),
        )

    @staticmethod
    def _check(options: dict[str, Any]) -> None:
        for name in ("workers", "capacity"):
            if options[name] < 1:
                raise TaskQueueUnavailable(f"--{name}: must be at least 1")
        if options["grace"] < 0:
            raise TaskQueueUnavailable("--grace: must be 0 or more seconds")
        unknown = [kind for kind in options["kinds"] or () if kind not in KINDS]
        if unknown:
            raise TaskQueueUnavailable(f"--kinds: {unknown[0]} is no kind; the kinds are {', '.join(KINDS)}")
