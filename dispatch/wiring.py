"""The composition root: from the one configuration to transport, authority, agents and turn store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection

from dispatch import task_names
from dispatch.agents.checks import CHECKS
from dispatch.agents.command.spec import Ground
from dispatch.agents.goals.loop import Loops
from dispatch.agents.goals.validation import Validator
from dispatch.agents.registry import Registry, load_agents
from dispatch.authority import WorkAuthority
from dispatch.authority.goals import DatabaseGoalStore
from dispatch.authority.leases import DatabaseTurnStore
from dispatch.authority.submit import NewItem, Submitted
from dispatch.errors import DispatchError, StoreUnavailable, TracingUnavailable
from dispatch.maintenance.advisory_lock import AdvisoryLock
from dispatch.network import patient
from dispatch.ports import Lease, RowStore, Serves, Transport
from dispatch.states import KINDS
from dispatch.tracing import NO_TRACES, Tracer
from dispatch.transports.memory import MemoryTransport
from dispatch.transports.postgres import PostgresTransport
from dispatch.transports.sqlite import SQLiteTransport
from sessions_app.state_file import state_file


class _Parts(threading.local):
    """A transport and authority that stand in for this thread's usual ones (dispatch.testing)."""

    authority: WorkAuthority | None = None


_lock = threading.RLock()
_made: dict[tuple[str, str], WorkAuthority] = {}
_registry: Registry | None = None
_tracer: Tracer | None = None
_override = _Parts()


def config() -> Any:
    """The process's AgentConfig."""
    return settings.FLEETSITE


def authority() -> WorkAuthority:
    """The authority over this process's state store; one for each store (tests use another file)."""
    if _override.authority is not None:
        return _override.authority
    key = (connection.vendor, str(connection.settings_dict["NAME"]))
    made = _made.get(key)
    if made is None:
        with _lock:
            made = _made.get(key)
            if made is None:
                made = _made[key] = _make_authority(_make_transport())
                _fill_fresh_queue(made)
    return made


def _fill_fresh_queue(made: WorkAuthority) -> None:
    """A queue file that is new with this process is filled before anybody asks for its depth."""
    if connection.in_atomic_block:
        return
    try:
        made.open_queue()
    except (DispatchError, DatabaseError):
        return  # whoever uses it next says what is wrong


def transport() -> Transport:
    return authority().transport


def registry() -> Registry:
    """The agents of this process, loaded at first use."""
    global _registry
    with _lock:
        if _registry is None:
            ground = _ground()
            made = load_agents(config().agent_modules, config().agents_file, ground)
            if task_names.backends():
                from dispatch.tasks.agent import task_agents  # django-tasks is an extra, loaded where it is used

                for built_in in task_agents():
                    made.add(built_in)
            validator = Validator(ground=ground, allowed=config().agent_validation_commands, checks=CHECKS)
            made.around_goal = Loops(goals=DatabaseGoalStore(), validator=validator).around
            _registry = made
        return _registry


def checks() -> tuple[str, ...]:
    """The checks of goals that this process has; its agents are loaded, and these with them."""
    registry()
    return CHECKS.names()


def tracer() -> Tracer:
    """Whoever is told of this process's traces: nobody, unless AGENT_TRACING is on."""
    global _tracer
    if _tracer is None:
        with _lock:
            _tracer = _tracer or _make_tracer()
    return _tracer


def _make_tracer() -> Tracer:
    if not config().tracing:
        return NO_TRACES
    try:
        from dispatch.telemetry import Telemetry  # OpenTelemetry is an extra, loaded where it is used
    except ModuleNotFoundError as error:
        raise TracingUnavailable from error
    return Telemetry()


def submit(items: Sequence[NewItem], *, parent: str | None = None) -> list[Submitted]:
    """Admit jobs, as WorkAuthority.submit; where traces are kept, in a span that the jobs carry on."""
    first = items[0]
    facts: dict[str, str | int] = {"jobs": len(items), "tenant": first.tenant}
    if len(items) == 1:
        facts |= {"job_id": first.job_id, "session_id": first.session_id, "agent_name": first.agent_name}
    with tracer().dispatching(parent, facts) as traceparent:
        if traceparent is not None:
            items = [replace(item, traceparent=traceparent) for item in items]
        return authority().submit(items)


def workdirs() -> Path:
    """Where the commands of this host's sessions have their directories."""
    return Path(config().data_dir) / "workdirs"


def _ground() -> Ground:
    role, value = config().daemon_role
    return Ground(
        workdirs=workdirs(),
        is_secret=config().is_secret,
        set_always={role: value},
        secret=lambda name: config().named_secret(os.environ, name),
    )


def prepare(agents: Iterable[str]) -> None:
    """Load what these agents need to run here. Raise BadAgent with one sentence."""
    for name in agents:
        agent = registry().get(name)
        if agent is not None and agent.prepare is not None:
            agent.prepare()


def serves(agents: tuple[str, ...] | None = None, kinds: tuple[str, ...] | None = None) -> Serves:
    """What a worker of this process runs: all its agents, or those of a pool that it has."""
    names = registry().names()
    return Serves(
        agents=tuple(n for n in names if agents is None or n in agents),
        kinds=tuple(k for k in KINDS if kinds is None or k in kinds),
    )


def turn_store() -> DatabaseTurnStore:
    from dispatch.services import child_dispatch

    def dispatch_child(lease: Lease, job_key: str, body: dict[str, Any]) -> str:
        return child_dispatch(lease=lease, job_key=job_key, body=body)

    return DatabaseTurnStore(ttl_s=config().claim_ttl_s, dispatch_child=dispatch_child)


def _make_transport() -> Transport:
    rows = _make_rows()
    return _make_kafka(rows) if config().queue_backend == "kafka" else rows


def _make_kafka(rows: RowStore) -> Transport:
    from dispatch.transports.kafka import KafkaSettings, KafkaTransport  # its client is loaded where it is used

    made = config()
    known = KafkaSettings(
        servers=made.kafka_bootstrap_servers,
        options=made.kafka_options,
        partitions=made.agent_turns_partitions,
        publish_timeout_s=made.kafka_publish_timeout_s,
        session_timeout_s=made.kafka_session_timeout_s,
        max_poll_interval_s=made.kafka_max_poll_interval_s,
        group_protocol=made.kafka_group_protocol,
        group_instance_id=made.kafka_group_instance_id,
    )
    return KafkaTransport(known, rows)


def _make_rows() -> RowStore:
    """The queue's rows: in the state store on Postgres, in a file of their own on SQLite."""
    if connection.vendor == "postgresql":
        return PostgresTransport(direct_uri())
    path = state_file(connection)
    if path is None:
        return MemoryTransport()
    if path == Path(config().state_path):
        return SQLiteTransport(Path(config().queue_path))
    # a test's own state file has a queue of its own beside it
    return SQLiteTransport(path.parent / f"{path.name}.d" / "queue.db")


def direct_uri() -> str:
    """Where LISTEN and session locks work; a test's database has another name than the configured one."""
    uri = config().direct_uri.get_secret_value()
    return patient(uri, dbname=str(connection.settings_dict["NAME"]))


def leader_lock() -> AdvisoryLock | None:
    """What makes a take-over immediate when the leader dies; a SQLite fleet, which is one host, has none."""
    return AdvisoryLock(direct_uri(), "fleetsite:ticks") if connection.vendor == "postgresql" else None


def _make_authority(made: Transport) -> WorkAuthority:
    return WorkAuthority(
        transport=made,
        max_depth=config().dispatch_max_depth,
        guard=_guard(),
        tick_s=config().tick_s,
        resend_s=config().queue_visibility_timeout_s,
    )


def _guard() -> Any:
    path = state_file(connection)
    if path is None:
        return lambda: None

    def guard() -> None:
        if not path.exists():
            raise StoreUnavailable("the state file has vanished; restore it before the fleet goes on")

    return guard


def refuse_vanished_store() -> None:
    """Raise StoreUnavailable when the state file has vanished: an open connection still reads what is no more."""
    _guard()()


class standing_in:
    """Let a memory queue, rebuilt from the state, stand in for this thread's transport."""

    def __enter__(self) -> WorkAuthority:
        self._before = _override.authority
        _override.authority = _make_authority(MemoryTransport(standing_in=True))
        return _override.authority

    def __exit__(self, *_: object) -> None:
        _override.authority = self._before
