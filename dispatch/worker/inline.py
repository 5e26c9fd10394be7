"""Run one job in the calling thread, through the same claim, run and fenced commit as in a worker."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar

from dispatch.agents.registry import Registry
from dispatch.agents.runner import TurnRun
from dispatch.outcomes import Outcome
from dispatch.ports import Authority, Lease, Serves, Settled, StepResult, TurnStore
from dispatch.tracing import NO_TRACES, Tracer
from dispatch.worker.events import LoggedEvents
from dispatch.worker.leases import LeaseKeeper
from dispatch.worker.settlement import Slot, settlement_of

T = TypeVar("T")
NOTHING = Serves(agents=(), kinds=())


def run_job(
    *,
    authority: Authority,
    registry: Registry,
    store: TurnStore,
    serves: Serves,
    job_id: str,
    ttl_s: float,
    renew_s: float,
    keep: bool = True,
    tracer: Tracer = NO_TRACES,
) -> str | None:
    """Run it once; answers the stored status, or None when the claim was refused."""
    owner = secrets.token_hex(16)
    lease = authority.claim(job_id, owner=owner, ttl_s=ttl_s, serves=serves)
    if isinstance(lease, str):
        return None
    settled = run_lease(
        lease,
        authority=authority,
        registry=registry,
        store=store,
        ttl_s=ttl_s,
        renew_s=renew_s,
        keep=keep,
        tracer=tracer,
    )
    return settled.status if settled else None


class CallsHere(Executor):
    """Runs what other threads submit in the thread that calls `serve`, whose database transaction they are part of."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(call)
        return future

    def serve(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on a loop in another thread, and meanwhile its calls in this one."""
        with ThreadPoolExecutor(1) as loop:
            future = loop.submit(asyncio.run, coroutine)
            future.add_done_callback(lambda _: self._calls.put(None))
            while (call := self._calls.get()) is not None:
                call()
        return future.result()


def _outcome(slot: Slot, here: CallsHere | None) -> Outcome:
    if not slot.agent.is_async:
        return slot.run.run_sync()
    return here.serve(slot.run.run_async()) if here else asyncio.run(slot.run.run_async())


def run_lease(
    lease: Lease,
    *,
    authority: Authority,
    registry: Registry,
    store: TurnStore,
    ttl_s: float,
    renew_s: float,
    keep: bool = True,
    tracer: Tracer = NO_TRACES,
) -> Settled | None:
    """Run a leased turn here and settle it; None when its fence was lost. `keep`: renew the lease meanwhile."""
    agent = registry.runner_of(lease)
    if agent is None:
        raise LookupError(f"agent {lease.agent_name} was claimed and is not registered")
    events = LoggedEvents()
    here = None if keep else CallsHere()
    run = TurnRun(lease, agent, store, executor=here, tracer=tracer)
    slot = Slot(run=run, agent=agent, claimed_at=time.monotonic())
    keeper = LeaseKeeper(authority=authority, events=events, ttl_s=ttl_s, renew_s=renew_s)
    if keep:
        keeper.add(slot)
        keeper.start()
    try:
        outcome = _outcome(slot, here)
    finally:
        if keep:
            keeper.stop()
    settlement = settlement_of(slot, outcome)
    if settlement is None:
        return None
    since_ns = time.time_ns()
    result: StepResult = authority.step(
        owner=lease.owner, ttl_s=ttl_s, settle=[settlement], want=0, serves=NOTHING, cursor=""
    )
    if not result.settled:
        return None
    tracer.settled(result.settled[0], lease, parent=settlement.traceparent, since_ns=since_ns)
    return result.settled[0]
