"""Run turns in many sessions, hurt the workers if asked to, and prove that nothing was lost, doubled or reordered."""

from __future__ import annotations

import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from dispatch import wiring
from dispatch.demo import agents
from dispatch.demo.crew import Crew
from dispatch.demo.load import Load
from dispatch.demo.nemesis import Nemesis
from dispatch.demo.run import Demo, NoWorker, in_words, live_pids
from dispatch.errors import DispatchError
from dispatch.preflight import preflight

EXIT_BROKEN = 1
EXIT_REFUSED = 2
GRACE_S = 0.1  # after SIGTERM; then turns are handed back


class Command(BaseCommand):
    help = "Runs demo turns on real workers and proves the promises. Exit 0: kept; 1: broken; 2: it could not start."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--sessions", type=int, default=20, help="sessions (default 20)")
        parser.add_argument("--turns", type=int, default=20, help="turns of each session (default 20)")
        parser.add_argument("--workers", type=int, default=3, help="worker processes (default 3)")
        parser.add_argument("--kill-workers", action="store_true", help="kill, freeze and terminate workers meanwhile")
        parser.add_argument("--seconds", type=float, default=0.0, help="go on with more turns for at least so long")
        parser.add_argument("--seed", type=int, default=None, help="decides the order of the faults")

    def handle(self, *args: Any, **options: Any) -> None:
        for name in ("sessions", "turns", "workers"):
            if options[name] < 1:
                raise CommandError(f"--{name}: must be at least 1")
        if options["kill_workers"] and options["workers"] < 2:
            raise CommandError("--workers: must be at least 2 with --kill-workers, or nobody is left to take over")
        try:
            preflight()
        except DispatchError as error:
            self.stderr.write(error.message)
            sys.exit(EXIT_REFUSED)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _leave)
        with tempfile.TemporaryDirectory(prefix="fleetsite-demo-") as place:
            kept = self._run(Path(place), options)
        if not kept:
            sys.exit(EXIT_BROKEN)

    def _run(self, place: Path, options: dict[str, Any]) -> bool:
        config = wiring.config()
        seed = options["seed"] if options["seed"] is not None else random.SystemRandom().randrange(1_000_000)
        journal = place / "journal"
        crew = Crew(
            options["workers"],
            # one worker can run them all: a turn that was taken away waits for no slot
            options=["--capacity", str(options["sessions"]), "--agents", agents.NAME, "--grace", str(GRACE_S)],
            env={"AGENT_MODULES": agents.__name__, agents.JOURNAL: str(journal)},
            logs=place,
            live_pids=live_pids,
        )
        nemesis = None
        if options["kill_workers"]:
            self.stdout.write(f"seed {seed}; leases of {config.claim_ttl_s:g} s, ticks of {config.tick_s:g} s")
            nemesis = Nemesis(
                crew,
                seed=seed,
                every_s=1.0,
                freeze_s=config.claim_ttl_s + 1.0,
                freeze_is_outage=connection.vendor == "sqlite",
            )
        demo = Demo(
            load=Load(sessions=options["sessions"], most_s=1.0),
            crew=crew,
            journal=journal,
            nemesis=nemesis,
            rounds=options["turns"],
            seconds=options["seconds"],
            tell=self.stdout.write,
        )
        try:
            demo.run()
            report = demo.report()
        except NoWorker as error:
            self.stderr.write(str(error))
            self.stderr.write("\n".join(path.read_text(errors="replace")[-2000:] for path in place.glob("worker-001*")))
            sys.exit(EXIT_REFUSED)
        finally:
            crew.stop()
        for line in in_words(report):
            self.stdout.write(line)
        return report.kept


def _leave(number: int, frame: object) -> NoReturn:
    """Turn the signal into an exception, so that the workers are stopped on the way out."""
    sys.exit(128 + number)
