"""Run one turn of one agent, and say what came of it. Never raises, whatever the agent does."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from types import TracebackType
from typing import Any

from dispatch.agents.clean import clean_json, clean_text, describe, stored_result, type_name
from dispatch.agents.context import TurnContext
from dispatch.agents.control import (
    Cancelled,
    ChildrenPending,
    Discard,
    GoalMissed,
    LeftOff,
    NeedsInput,
    Result,
    Retry,
    Snooze,
)
from dispatch.agents.registry import RegisteredAgent
from dispatch.errors import LeaseLost
from dispatch.outcomes import (
    MAX_MESSAGE_BYTES,
    AgentFailed,
    CancelledRun,
    ChildrenAwaited,
    Discarded,
    HandedBack,
    InputAsked,
    LeaseGone,
    Missed,
    Outcome,
    RetryAsked,
    Snoozed,
    Succeeded,
    TimedOut,
)
from dispatch.ports import Lease, TurnStore
from dispatch.tracing import NO_TRACES, Tracer
from dispatch.worker_ports import Clock

log = logging.getLogger("dispatch.agents")


class Stop:
    """Why a run is told to stop."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"
    TIMEOUT = "timeout"
    BUDGET = "budget_exceeded"
    HANDBACK = "handback"
    LOST = "lost"


_MESSAGES = {
    Stop.CANCELLED: "cancelled on request",
    Stop.EXPIRED: "the deadline has passed",
    Stop.TIMEOUT: "the run took longer than its time limit",
    Stop.BUDGET: "the goal's max_seconds are used up",
    Stop.HANDBACK: "the worker shuts down",
    Stop.LOST: "the lease was lost",
}


class AgentError(Exception):
    """Stands for an agent's exception in the log, which shows where it was raised but not its text."""


class TurnRun:
    """One run. `stop` and `fence` may be called from any thread, `run_sync` or `run_async` once."""

    def __init__(
        self,
        lease: Lease,
        agent: RegisteredAgent,
        store: TurnStore,
        clock: Clock = time.monotonic,
        *,
        executor: Executor | None = None,
        tracer: Tracer = NO_TRACES,
    ) -> None:
        self.agent = agent
        self.context = TurnContext(lease, store, executor=executor)
        self.run_s: float | None = None  # how long it ran, once it has ended
        self._store = store
        self._clock = clock
        self._tracer = tracer
        self._lock = threading.Lock()
        self._stop: tuple[str, str] | None = None
        self._interrupt: Callable[[], object] | None = None

    @property
    def lease(self) -> Lease:
        return self.context.lease

    @property
    def stopped(self) -> str | None:
        """The code that this run was told to stop with."""
        return self._stop[0] if self._stop else None

    def stop(self, code: str, message: str | None = None) -> None:
        """Tell the run to stop: flag the context, cancel an async agent.

        The first reason stays, except for a lost lease. Raise KeyError for a code that is not one of Stop.
        """
        text = _MESSAGES[code] if message is None else clean_text(message, MAX_MESSAGE_BYTES)
        with self._lock:
            if code == Stop.LOST:
                self.context.fence()
            elif self._stop is not None:
                return
            first = self._stop is None
            self._stop = (code, text)
            self.context.tell(code, text)
            if first and self._interrupt is not None:
                self._interrupt()

    def held_until(self, monotonic_s: float) -> None:
        """The lease was taken or renewed."""
        self.context.held_until(monotonic_s)

    def fence(self) -> None:
        """Go on without this run: its later writes raise LeaseLost, and its outcome is LeaseGone."""
        self.context.fence()

    def abandon(self) -> Outcome:
        """Fence a run that was told to stop and has not, and say what to settle without it."""
        stop = self._stop
        gone = self.context.lease_gone
        self.context.fence()
        return LeaseGone() if gone or stop is None else _stopped(*stop)

    def run_sync(self) -> Outcome:
        """Run the agent in this thread."""
        begun = self._clock()
        value, error = self._call()
        outcome = self._ended(begun, value, error)
        self._release()
        return outcome

    async def run_async(self) -> Outcome:
        """Run the agent as a task of this loop. Cancelling the caller's task hands the turn back."""
        begun = self._clock()
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._acall())
        with self._lock:
            self._interrupt = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._stop is not None:
                task.cancel()
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                self.stop(Stop.HANDBACK)
                caller = asyncio.current_task()
                if caller is not None:
                    caller.uncancel()
        with self._lock:
            self._interrupt = None
        value, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
        return self._ended(begun, value, error)

    def _release(self) -> None:
        """Give back also what the agent's own code left open in this thread."""
        try:
            self._store.release()
        except Exception as error:
            log.warning("store not released", extra={"job_id": self.lease.job_id, "error": type_name(error)})

    def _call(self) -> tuple[Any, BaseException | None]:
        with self._tracer.running(self.lease) as span:
            self.context.traceparent = span.traceparent
            try:
                try:
                    return self.agent.fn(self.context), None
                finally:
                    self.context.last_words()
            except BaseException as error:  # SystemExit of an agent must not end the worker
                span.failed(type_name(error))
                return None, error

    async def _acall(self) -> tuple[Any, BaseException | None]:
        with self._tracer.running(self.lease) as span:
            self.context.traceparent = span.traceparent
            try:
                try:
                    return await self.agent.fn(self.context), None
                finally:
                    await self.context.alast_words()
            except BaseException as error:  # a task that raises SystemExit would end the loop
                span.failed(type_name(error))
                return None, error

    def _ended(self, begun: float, value: Any, error: BaseException | None) -> Outcome:
        self.run_s = self._clock() - begun
        try:
            return self._outcome(value, error)
        except BaseException as unreadable:  # an agent's exception or value may have methods that raise
            return AgentFailed(message=describe(unreadable, MAX_MESSAGE_BYTES))

    def _outcome(self, value: Any, error: BaseException | None) -> Outcome:
        error = _only_leaf(error)
        if self.context.lease_gone or isinstance(error, LeaseLost):
            return LeaseGone()
        stop = self._stop
        # a value that came in spite of a cancel or a deadline is still a value; a run that was handed back or over its
        # time may have returned early because it was told to
        if stop is not None and (error is not None or stop[0] in (Stop.TIMEOUT, Stop.HANDBACK)):
            return _stopped(*stop)
        return self._returned(value) if error is None else self._raised(error)

    def _returned(self, value: Any) -> Outcome:
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            return AgentFailed(message="the agent returned an awaitable; declare it with async def")
        result = value if isinstance(value, Result) else Result(value)
        state, marks = clean_json(self.context.state, limit=None)
        if not isinstance(state, dict):
            return AgentFailed(message="the session state is not an object")
        notes = [clean_text(result.message)] if isinstance(result.message, str) else []
        if marks:
            notes.append(f"session state cleaned: {', '.join(marks)}")
        message = clean_text("; ".join(notes), MAX_MESSAGE_BYTES) if notes else None
        return Succeeded(result=stored_result(result.value), state=state, message=message)

    def _raised(self, error: BaseException) -> Outcome:
        match error:
            case Retry():
                cause = error.__cause__
                if cause is None:
                    return RetryAsked(after_s=error.after_s)
                return RetryAsked(after_s=error.after_s, message=describe(cause, MAX_MESSAGE_BYTES))
            case Snooze():
                return Snoozed(after_s=error.after_s)
            case Discard():
                return Discarded(reason=clean_text(error.reason, MAX_MESSAGE_BYTES), code=error.code)
            case GoalMissed():
                return Missed(code=error.code, message=clean_text(error.message, MAX_MESSAGE_BYTES))
            case LeftOff():
                return HandedBack(message=clean_text(str(error), MAX_MESSAGE_BYTES))
            case NeedsInput():
                return InputAsked(question=error.question, choices=error.choices, terms=error.terms)
            case ChildrenPending():
                return ChildrenAwaited(job_ids=error.job_ids)
            case Cancelled() | asyncio.CancelledError():
                return AgentFailed(message="the agent cancelled itself: nobody had asked it to stop")
        self._log(error, error.__traceback__)
        return AgentFailed(message=describe(error, MAX_MESSAGE_BYTES))

    def _log(self, error: BaseException, trace: TracebackType | None) -> None:
        ids = {
            "job_id": self.lease.job_id,
            "session_id": self.lease.session_id,
            "agent_name": self.agent.name,
            "attempt": self.lease.attempt,
            "epoch": self.lease.epoch,
        }
        shown = AgentError(type_name(error))
        log.warning("agent raised", exc_info=(AgentError, shown, trace), extra=ids)


def _only_leaf(error: BaseException | None) -> BaseException | None:
    """What a task group wraps around the one thing that was raised inside it is taken off."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _stopped(code: str, message: str) -> Outcome:
    if code == Stop.TIMEOUT:
        return TimedOut(message=message)
    if code == Stop.BUDGET:
        return Missed(code=code, message=message)
    if code == Stop.HANDBACK:
        return HandedBack(message=message)
    return CancelledRun(code=code, message=message)
