"""What bin/test runs: the suite on SQLite, the tests marked `store` on Postgres, those marked `kafka` with a broker."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from tests.support.kafka import SERVERS, VERSION, KafkaBroker, NoKafka
from tests.support.postgres import NoPostgres, PostgresCluster, environment, run, stop_on_sigterm
from tests.support.server import OPTION, NotUsable, check, own_database
from tests.support.system_packages import FOR_BROWSER, FOR_KAFKA, FOR_POSTGRES, provide

QUICK = "not process and not slow and not bench and not kafka"
USAGE = """usage: bin/test [--quick | --state-db-uri URI] [any pytest argument]

  without arguments   all tests on SQLite, those marked `store` on a Postgres cluster of its own, then those marked
                      `kafka` with a Kafka broker, on SQLite, and on Postgres those that are marked `store` too;
                      `browser` where there is Chromium
  --quick             no service and no processes, SQLite alone
  --state-db-uri URI  the Postgres part on that server, in a database of its own that is dropped at the end
  CI=true             what is missing fails instead of being left out"""
REFUSED = 2


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One run of pytest, in words for the last line."""

    summary: str
    passed: bool


def main(arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(USAGE)
        return 0
    quick = "--quick" in arguments
    try:
        uri, arguments = _server(argument for argument in arguments if argument != "--quick")
        if quick and uri is not None:
            raise NotUsable(f"{OPTION}: --quick leaves Postgres out; give one of them")
        if uri is not None:
            check(uri)
    except NotUsable as refusal:
        print(refusal, file=sys.stderr)
        return REFUSED
    asked, marks = _split(arguments)
    stop_on_sigterm()
    ours = dict(os.environ)
    ours.pop("STATE_DB_URI", None)
    ours.pop(SERVERS, None)
    if not quick:
        provide(FOR_BROWSER)
    runs = [_pytest("SQLite", ours, asked, [QUICK if quick else "not kafka", *marks])]
    if not quick:
        stored = ["store", "not kafka", *marks]
        runs.append(_on_postgres(asked, stored) if uri is None else _on_server(uri, asked, stored))
        runs += _with_kafka(ours, asked, ["kafka", *marks])
    passed = all(one.passed for one in runs)
    print(f"\nbin/test: {'; '.join(one.summary for one in runs)}: {'passed' if passed else 'FAILED'}", flush=True)
    return 0 if passed else 1


def _on_postgres(asked: Sequence[str], marks: Sequence[str]) -> Ran:
    provide(FOR_POSTGRES)
    try:
        with PostgresCluster() as cluster:
            print(f"\nPostgres from {cluster.programs}, port {cluster.port}", flush=True)
            return _pytest("Postgres", environment(cluster.create_database("fleetsite")), asked, marks)
    except NoPostgres as refusal:
        print(f"\n{refusal}", flush=True)
        return Ran(summary="Postgres: not run, no server found", passed=not os.environ.get("CI"))


def _with_kafka(ours: Mapping[str, str], asked: Sequence[str], marks: Sequence[str]) -> list[Ran]:
    """A broker beside a state store in SQLite, then beside one in Postgres."""
    provide(FOR_KAFKA)
    runs: list[Ran] = []
    try:
        with KafkaBroker() as broker:
            print(f"\nKafka {VERSION} at {broker.servers}", flush=True)
            at = {SERVERS: broker.servers}
            runs.append(_pytest("Kafka", {**ours, **at}, asked, marks))
            with PostgresCluster() as cluster:
                state = environment(cluster.create_database("fleetsite"))
                runs.append(_pytest("Kafka, Postgres", {**state, **at}, asked, ["store", *marks]))
    except (NoKafka, NoPostgres) as refusal:
        print(f"\n{refusal}", flush=True)
        what = "Kafka, Postgres: not run, no server found" if runs else "Kafka: not run, no broker to be had"
        runs.append(Ran(summary=what, passed=not os.environ.get("CI")))
    return runs


def _on_server(uri: str, asked: Sequence[str], marks: Sequence[str]) -> Ran:
    with own_database(uri) as database:
        print(f"\nPostgres of {OPTION}, database {urlsplit(database).path.removeprefix('/')}", flush=True)
        return _pytest("Postgres", environment(database), asked, marks)


def _pytest(store: str, env: Mapping[str, str], asked: Sequence[str], marks: Sequence[str]) -> Ran:
    print(f"\n== {store}", flush=True)
    chosen = ["-m", " and ".join(f"({mark})" for mark in marks)] if marks else []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fleetsite-report-") as place:
        report = Path(place) / "report.xml"
        told = [f"--junit-xml={report}", "--durations=25", "--durations-min=5"]
        code = run([sys.executable, "-m", "pytest", *told, *asked, *chosen], dict(env))
        counts = _counts(report)
    # Somebody who names tests may name some that the second run has none of.
    nothing_chosen = code == pytest.ExitCode.NO_TESTS_COLLECTED and bool(asked)
    return Ran(summary=f"{store}: {counts} in {time.monotonic() - began:.0f} s", passed=code == 0 or nothing_chosen)


def _counts(report: Path) -> str:
    if not report.exists():
        return "no report"
    suite = ElementTree.parse(report).getroot().find("testsuite")
    if suite is None:
        return "no report"
    total, failed, errors, skipped = (int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped"))
    words = {"passed": total - failed - errors - skipped, "failed": failed, "errors": errors, "skipped": skipped}
    return ", ".join(f"{count} {word}" for word, count in words.items() if count or word == "passed")


def _server(arguments: Iterable[str]) -> tuple[str | None, list[str]]:
    """The address that the option names, and the other arguments. Raises NotUsable when it names none."""
    rest: list[str] = []
    uri = None
    given = iter(arguments)
    for argument in given:
        if argument == OPTION:
            uri = next(given, "")
        elif argument.startswith(f"{OPTION}="):
            uri = argument.partition("=")[2]
        else:
            rest.append(argument)
    if uri == "":
        raise NotUsable(f"{OPTION}: is followed by no address")
    return uri, rest


def _split(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """Pytest's arguments without its `-m EXPRESSION`, and the expressions: ours are joined to them."""
    rest: list[str] = []
    marks: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "-m":
            marks.append(next(given, ""))
        else:
            rest.append(argument)
    return rest, [mark for mark in marks if mark]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
