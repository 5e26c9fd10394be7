"""What an agent sees of its turn, and the durable things that it can do while it runs."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from dispatch.agents.clean import MAX_RESULT_BYTES, clean_json, clean_text, copied
from dispatch.agents.control import Cancelled, ended
from dispatch.agents.goals.view import Goal
from dispatch.agents.history import History
from dispatch.agents.patience import patiently, patiently_here
from dispatch.agents.said import Said
from dispatch.errors import Invalid, LeaseLost
from dispatch.ports import Lease, TurnStore
from dispatch.spending import Budget, ModelSpend

MAX_KEY_CHARS = 200

# Store calls made from an event loop run here: they block, and a database client may refuse a thread with a loop.
_STORE_CALLS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="turn-store")

_AWAY: ContextVar[bool] = ContextVar("turn_away", default=False)


class ChildHandle(str):
    """A child job's id, as a str."""

    __slots__ = ()

    @property
    def job_id(self) -> str:
        return str(self)


class TurnContext:
    """One run of a turn. Writes are fenced: they raise LeaseLost once the turn is no longer this run's to write.

    Each blocking call has an async twin with an `a` before its name (`wait`: `await_children`). The plain calls work on
    an event loop too, and hold it up for one store call.
    """

    def __init__(self, lease: Lease, store: TurnStore, *, executor: Executor | None = None) -> None:
        self._lease = lease
        self._held_until: float | None = None
        self._on_renewal: Callable[[float], None] | None = None
        self._on_told: Callable[[], None] | None = None
        self._store = store
        self._executor = executor or _STORE_CALLS
        self._told = False
        self._told_code, self._told_message = "cancelled", ""
        self._gone = False
        self._said = Said(self._pour_soon)
        self._calls = itertools.count(1)
        self._scope = ""  # of the names of steps and children: each iteration has its own
        # {why: when, by the monotonic clock} it is told to stop; replaced and never changed: the lease keeper reads it
        self.limits: Mapping[str, float] = {}
        self.goal: Goal | None = None
        self._checkpoint = copied(lease.checkpoint)
        self.task = lease.task
        self.payload: dict[str, Any] = copied(lease.payload)
        self.session_id = lease.session_id
        self.job_id = lease.job_id
        self.turn_number = lease.turn_number
        self.attempt = lease.attempt
        self.tenant = lease.tenant
        self.deadline: datetime | None = lease.deadline
        self.traceparent = lease.traceparent  # while it runs in a trace: that of its own span
        # a manual retry gives the job a new place in its session, and so a new key
        self.idempotency_key = f"{lease.job_id}:{lease.session_seq}"
        self.state: dict[str, Any] = copied(lease.state)
        # nothing ran before a first turn: no need to ask the store
        self.history = History(self._load_history if lease.turn_number > 1 else list)

    # -- being told to stop

    @property
    def cancelled(self) -> bool:
        """True once this run has been told to stop, for whatever reason."""
        return self._told

    def raise_if_cancelled(self) -> None:
        if self._told:
            raise Cancelled(self._told_code, self._told_message)

    def tell(self, code: str, message: str) -> None:
        """Called by the worker: from now on `cancelled` is true."""
        self._told_code, self._told_message = code, message
        self._told = True
        if (hear := self._on_told) is not None:
            hear()

    def on_told(self, hear: Callable[[], None] | None) -> None:
        """Have `hear` called, in any thread, when this run is told to stop; at once if it was."""
        self._on_told = hear
        if self._told and hear is not None:
            hear()

    def fence(self) -> None:
        """Called by the worker when it goes on without this run: every later write raises LeaseLost."""
        self._gone = True

    @property
    def lease(self) -> Lease:
        """For the agents of this package."""
        return self._lease

    def held_until(self, monotonic_s: float) -> None:
        """Called by the worker, from any thread: the lease is held until then by the host's monotonic clock."""
        self._held_until = monotonic_s
        if self._on_renewal is not None:
            self._on_renewal(monotonic_s)

    def on_renewal(self, tell: Callable[[float], None]) -> None:
        """For what must end with the lease by itself: `tell` hears, in any thread, until when the lease is held."""
        self._on_renewal = tell
        if self._held_until is not None:
            tell(self._held_until)

    def enter(self, goal: Goal, limits: Mapping[str, float]) -> None:
        """Called by the loop: an iteration begins, with steps, children and an idempotency key of its own."""
        self.goal, self.limits = goal, limits
        self.task = goal.objective
        self._lease = replace(self._lease, task=goal.objective)
        self._calls, self._scope = itertools.count(1), f"{goal.iteration}:"
        self.idempotency_key = f"{self.job_id}:{self._lease.session_seq}:{goal.iteration}"

    def count_anew(self) -> None:
        """Called by the loop: an iteration is committed, so this run counts as the first attempt since then."""
        self._lease = replace(self._lease, attempt=1)
        self.attempt = 1

    def stored(self, method: Callable[..., Any], *args: Any) -> Any:
        """Write by a method of a store of this package's, which gets the lease first."""
        return self._write(method, *args)

    async def astored(self, method: Callable[..., Any], *args: Any) -> Any:
        return await self._awrite(method, *args)

    @property
    def lease_gone(self) -> bool:
        """True once the run was fenced, or the store refused one of its writes because the lease is lost."""
        return self._gone

    async def ahistory(self) -> Sequence[dict[str, Any]]:
        """Read the history in a thread; `history` answers at once afterwards."""
        await asyncio.get_running_loop().run_in_executor(self._executor, len, self.history)
        return self.history

    # -- output

    def emit(self, text: str) -> None:
        """Append streamed output: written at once, or together with what follows within a quarter of a second."""
        self._refuse_if_gone()
        self._said.text(text)
        if self._said.is_due():
            self._read(self._pour)

    async def aemit(self, text: str) -> None:
        self._refuse_if_gone()
        self._said.text(text)
        if self._said.is_due():
            await self._on_thread(self._pour)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the work is. Of what is said at short intervals the newest is written."""
        self._refuse_if_gone()
        self._said.progress(done, total, message)
        if self._said.is_due():
            self._read(self._pour)

    async def aprogress(self, done: float, total: float | None = None, message: str = "") -> None:
        self._refuse_if_gone()
        self._said.progress(done, total, message)
        if self._said.is_due():
            await self._on_thread(self._pour)

    async def write_now(self, kind: str, data: dict[str, Any]) -> None:
        """For the agents of this package, which have batches and limits of their own."""
        await self._awrite(self._store.emit, kind, data)

    def last_words(self) -> None:
        """Called by the worker when the agent has ended: write what is left."""
        if self._said and not self._gone:
            patiently_here(self._read, self._pour, unless=lambda: self._told)

    async def alast_words(self) -> None:
        if self._said and not self._gone:
            await patiently(self._on_thread, self._pour)

    def _pour(self, lease: Lease) -> None:
        self._said.write(partial(self._store.emit, lease))

    def _pour_soon(self) -> None:
        self._executor.submit(copy_context().run, self._pour_quietly)

    def _pour_quietly(self) -> None:
        with suppress(Exception):  # it stays, and whoever writes next is told
            if not self._gone:
                self._noting(self._pour)

    # -- checkpoints and steps

    @property
    def last_checkpoint(self) -> Any:
        """The value last given to `checkpoint`, in this run or an earlier one of the job; None before the first."""
        return self._checkpoint

    def checkpoint(self, value: Any) -> None:
        """Keep a JSON value for a later run of this turn; refuses one over 1 MiB."""
        kept = _checkpoint_value(value)
        self._write(self._store.checkpoint, kept)
        self._checkpoint = kept

    async def acheckpoint(self, value: Any) -> None:
        kept = _checkpoint_value(value)
        await self._awrite(self._store.checkpoint, kept)
        self._checkpoint = kept

    def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn(*args)` once over all attempts and return its stored result, a plain JSON value.

        Refuses with LeaseLost before `fn` runs. A crash between `fn` and the write makes it run again: hand
        `idempotency_key` to what must not happen twice. A result over 1 MiB is stored, and returned, as a preview.
        """
        _named("name", name)
        kept_as = self._scope + name
        found, stored = self._write(self._store.step_load, kept_as)
        if found:
            return stored
        return self._write(self._store.step_save, kept_as, clean_json(fn(*args))[0])

    async def astep(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Like `step`; `fn` may be a coroutine function, and a plain one runs in a thread."""
        _named("name", name)
        kept_as = self._scope + name
        found, stored = await self._awrite(self._store.step_load, kept_as)
        if found:
            return stored
        result = fn(*args) if inspect.iscoroutinefunction(fn) else await asyncio.to_thread(fn, *args)
        if inspect.isawaitable(result):
            result = await result
        return await self._awrite(self._store.step_save, kept_as, clean_json(result)[0])

    # -- people and children

    @property
    def reply(self) -> str | None:
        """The answer to this turn's question; None while nobody was asked."""
        return self._read(self._store.reply) if self._lease.resumed else None

    async def areply(self) -> str | None:
        return await self._on_thread(self._store.reply) if self._lease.resumed else None

    @property
    def children(self) -> list[dict[str, Any]]:
        """The jobs that this turn dispatched, also in earlier runs: job_id, session_id, status, result, error."""
        children: list[dict[str, Any]] = self._read(self._store.children)
        return children

    async def achildren(self) -> list[dict[str, Any]]:
        children: list[dict[str, Any]] = await self._on_thread(self._store.children)
        return children

    def dispatch(self, task: str, *, key: str | None = None, **fields: Any) -> ChildHandle:
        """Dispatch a child job; `fields` are those of a dispatch body, without `idempotency_key`.

        Its id derives from this job and `key`, or from the number of this call among those without a key, so that a
        second run finds the same child.
        """
        job_key, body = self._child(task, key, fields)
        return ChildHandle(self._write(self._store.dispatch_child, job_key, body))

    async def adispatch(self, task: str, *, key: str | None = None, **fields: Any) -> ChildHandle:
        job_key, body = self._child(task, key, fields)
        return ChildHandle(await self._awrite(self._store.dispatch_child, job_key, body))

    def wait(self, *handles: str) -> list[dict[str, Any]]:
        """Return these children (all, when none is named) if each has ended; else suspend the turn until they have.

        The turn then runs again from its start, without using an attempt. Refuses a child in this turn's own session,
        which would wait behind its parent for ever.
        """
        return self._ended(handles, self.children)

    async def await_children(self, *handles: str) -> list[dict[str, Any]]:
        """The async twin of `wait`."""
        return self._ended(handles, await self.achildren())

    def _ended(self, handles: Sequence[str], children: list[dict[str, Any]]) -> list[dict[str, Any]]:
        named = set(map(str, handles))
        if any(c.get("session_id") == self.session_id for c in children if not named or c["job_id"] in named):
            raise Invalid("a turn cannot wait for a child in its own session", fields={"handles": "own session"})
        return ended(handles, children)

    def _child(self, task: str, key: str | None, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if "idempotency_key" in fields:
            raise Invalid("a child's id derives from key", fields={"idempotency_key": "use key"})
        if key is None:
            return f"{self._scope}call:{next(self._calls)}", {"task": task, **fields}
        _named("key", key)
        return f"{self._scope}key:{key}", {"task": task, **fields}

    # -- models

    async def model_begins(self, model: str, budget: Budget) -> tuple[str, int, int] | None:
        """For the agents of this package: count a request before it is sent, or answer the limit that is used up."""
        limit: tuple[str, int, int] | None = await self._awrite(self._store.model_begins, model, budget)
        return limit

    async def model_ended(self, model: str, spend: ModelSpend) -> None:
        await self._awrite(self._store.model_ended, model, spend)

    # -- the store

    @contextmanager
    def in_other_thread(self) -> Iterator[None]:
        """For the agents of this package: inside, code of the agent's runs in a thread that is not the store's."""
        token = _AWAY.set(True)
        try:
            yield
        finally:
            _AWAY.reset(token)
            self._store.release()  # what that code itself left open

    def _load_history(self) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = self._read(self._store.history)
        return turns

    def _read(self, method: Callable[..., Any], *args: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if not _AWAY.get():
                return self._noting(method, *args)
        return self._executor.submit(copy_context().run, self._noting, method, *args).result()

    async def _on_thread(self, method: Callable[..., Any], *args: Any) -> Any:
        call = copy_context().run  # on the other thread too, what it does hangs on the run's span
        return await asyncio.get_running_loop().run_in_executor(self._executor, call, self._noting, method, *args)

    def _write(self, method: Callable[..., Any], *args: Any) -> Any:
        self._refuse_if_gone()
        if self._said:
            self._read(self._pour)  # said before it, so written before it
        return self._read(method, *args)

    async def _awrite(self, method: Callable[..., Any], *args: Any) -> Any:
        self._refuse_if_gone()
        if self._said:
            await self._on_thread(self._pour)
        return await self._on_thread(method, *args)

    def _refuse_if_gone(self) -> None:
        if self._gone:
            raise LeaseLost()

    def _noting(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call the store; what it says about the lease stays known when the agent swallows the exception.

        Nothing of the store is held between calls: an agent may run for hours, and connections are few.
        """
        try:
            return method(self._lease, *args)
        except LeaseLost:
            self._gone = True
            raise
        finally:
            self._store.release()


def _checkpoint_value(value: Any) -> Any:
    kept, marks = clean_json(value)
    if "truncated" in marks:
        # a cut checkpoint would resume the turn with the wrong thing
        raise Invalid(f"a checkpoint has at most {MAX_RESULT_BYTES} bytes of JSON", fields={"value": "too large"})
    return kept


def _named(field: str, value: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARS or clean_text(value) != value:
        raise Invalid(f"{field} is a text of 1 to {MAX_KEY_CHARS} characters", fields={field: "not a short text"})
