"""The client for one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx2

from dispatch.client import calls, http, programs
from dispatch.client.access import Access
from dispatch.client.calls import Call
from dispatch.client.errors import ApiError
from dispatch.client.following import Next, Open, Opened, Told, follow
from dispatch.client.programs import Handle, Lost, Patience, Pause, Program, Reply, Send
from dispatch.client.shapes import (
    CancelAnswer,
    DispatchBody,
    DispatchFields,
    Explanation,
    Health,
    IterationPage,
    JobDetails,
    JobEvent,
    JobPage,
    JobState,
    Redelivered,
    ReplyAnswer,
    SessionDetails,
    SessionPage,
    StreamEvent,
    Topology,
)

T = TypeVar("T")


class AsyncClient:
    """A caller with one key; `close` it, or use `async with`.

    `key`: without it, the one in the file that AGENT_API_KEY_FILE names. A call that gets 429, 502, 503 or 504, or
    loses its connection, is sent again for up to `retry_for_s` seconds where that cannot do a thing twice.
    Raises ClientMisuse here, ApiError and its classes for refusals, ConnectionLost and BadAnswer.
    """

    def __init__(self, base_url: str, key: str | None = None, *, retry_for_s: float = 60.0) -> None:
        self._access = Access.of(base_url, key)
        self._patience = Patience(for_s=retry_for_s)
        self._http = httpx2.AsyncClient(**http.options(self._access))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # -- jobs ----------------------------------------------------------------------------------------------------------
    async def dispatch(self, task: str, **fields: Unpack[DispatchFields]) -> AsyncJob:
        """Dispatch one job. A repeat by this client finds the same job; so does yours with an `idempotency_key`."""
        return AsyncJob(self, await self.run(programs.dispatch(task, fields, self._patience)))

    async def dispatch_many(self, jobs: Sequence[DispatchBody]) -> list[AsyncJob | ApiError]:
        """Dispatch up to 1,000 jobs; each has its own answer, in order, a refusal among them."""
        answers = await self.run(programs.dispatch_many(list(jobs), self._patience))
        return [answer if isinstance(answer, ApiError) else AsyncJob(self, answer) for answer in answers]

    def job(self, job_id: str) -> AsyncJob:
        """A handle on a job that is known by its id; nothing is asked yet."""
        return AsyncJob(self, Handle(job_id=job_id, session_id=None))

    async def jobs(
        self,
        *,
        status: str | None = None,
        session_id: str | None = None,
        agent_name: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JobPage:
        """A page of jobs, newest first."""
        return await self.call(
            calls.job_list(
                status=status, session_id=session_id, agent_name=agent_name, kind=kind, limit=limit, cursor=cursor
            )
        )

    # -- sessions and fleet --------------------------------------------------------------------------------------------
    async def sessions(
        self,
        *,
        status: str | None = None,
        domain: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> SessionPage:
        """A page of sessions, newest first."""
        return await self.call(calls.session_list(status=status, domain=domain, limit=limit, cursor=cursor))

    async def session(self, session_id: str) -> SessionDetails:
        return await self.call(calls.session_get(session_id))

    async def reply(self, session_id: str, text: str | None = None, *, choice: str | None = None) -> ReplyAnswer:
        """Answer the session's open question, by a text or by one of its choices."""
        return await self.call(calls.session_reply(session_id, text, choice))

    async def health(self) -> Health:
        """The fleet's evidence and totals, also when it is not ready."""
        return await self.call(calls.health())

    async def topology(
        self,
        *,
        status: str | None = None,
        domain: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> Topology:
        return await self.call(calls.topology(status=status, domain=domain, limit=limit, offset=offset))

    # -- running the programs ------------------------------------------------------------------------------------------
    async def call(self, call: Call[T]) -> T:
        return await self.run(programs.tried(call, self._patience))

    async def run(self, program: Program[T]) -> T:
        try:
            step = next(program)
            while True:
                step = program.send(await self._perform(step))
        except StopIteration as done:
            answer: T = done.value
            return answer

    async def _perform(self, step: Send | Pause) -> Reply | Lost | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            sent = self._http.build_request(**http.request(self._access, step.call))
            return http.reply(await self._http.send(sent))
        except http.TransportError as error:
            return http.lost(error)

    async def follow(self, job_id: str, after: int) -> AsyncIterator[StreamEvent]:
        program, line = follow(job_id, after, self._patience), _Line(self._http, self._access)
        told: Told = None
        try:
            while True:
                step = program.send(told)
                told = None
                if isinstance(step, Open):
                    told = await line.open(step)
                elif isinstance(step, Next):
                    told = await line.next()
                elif isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    yield step.event
        except StopIteration:
            return
        finally:
            await line.shut()


class _Line:
    """One open stream at a time."""

    def __init__(self, client: httpx2.AsyncClient, access: Access) -> None:
        self._http, self._access = client, access
        self._response: httpx2.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    async def open(self, step: Open) -> Opened | Reply | Lost:
        await self.shut()
        try:
            sent = self._http.build_request(**http.stream_request(self._access, step))
            self._response = response = await self._http.send(sent, stream=True)
            if http.is_stream(response):
                self._pieces = response.aiter_raw()
                return Opened()
            await response.aread()
            return http.reply(response)
        except http.TransportError as error:
            return http.lost(error)

    async def next(self) -> bytes | Lost | None:
        try:
            return None if self._pieces is None else await anext(self._pieces, None)
        except http.TransportError as error:
            return http.lost(error)

    async def shut(self) -> None:
        if self._response is not None:
            await self._response.aclose()


class AsyncJob:
    """A handle on one job. `session_id` is None when only the id is known."""

    def __init__(self, client: AsyncClient, handle: Handle) -> None:
        self._client = client
        self.job_id, self.session_id = handle.job_id, handle.session_id
        self.replayed, self.coalesced = handle.replayed, handle.coalesced

    def __repr__(self) -> str:
        return f"<AsyncJob {self.job_id}>"

    async def status(self) -> JobState:
        return await self._client.call(calls.status(self.job_id))

    async def wait(self, timeout: float | None = None) -> JobState:
        """Where it stands as soon as it has ended, or after `timeout` seconds; never an error because time ran out."""
        return await self._client.run(programs.wait(self.job_id, timeout, self._client._patience))

    async def result(self, timeout: float | None = None) -> Any:
        """What the agent returned, when the job has succeeded. Raises JobFailed, JobUnfinished."""
        return await self._client.run(programs.result(self.job_id, timeout, self._client._patience))

    async def cancel(self, reason: str = "") -> CancelAnswer:
        return await self._client.call(calls.cancel(self.job_id, reason))

    async def retry(self, *, deadline_s: float | None = None) -> AsyncJob:
        """Run the same job again. Sent once: when its answer is lost, ask for the status."""
        handle = await self._client.run(programs.retry(self.job_id, deadline_s, self._client._patience))
        return AsyncJob(self._client, handle)

    async def explain(self) -> Explanation:
        """Why it is not running."""
        return await self._client.call(calls.explain(self.job_id))

    async def events(self) -> list[JobEvent]:
        """Its timeline, oldest first."""
        return (await self._client.call(calls.events(self.job_id)))["events"]

    async def iterations(self, *, limit: int | None = None, cursor: str | None = None) -> IterationPage:
        """A page of a goal's committed iterations, oldest first."""
        return await self._client.call(calls.iterations(self.job_id, limit, cursor))

    async def redeliver(self, delivery_id: str) -> Redelivered:
        """Send one of its callbacks again, under the same id."""
        return await self._client.call(calls.redeliver(self.job_id, delivery_id))

    async def read(self) -> JobDetails:
        return await self._client.call(calls.read(self.job_id))

    def stream(self, *, after: int = 0) -> AsyncIterator[StreamEvent]:
        """What it says and where it stands, until it has ended; a stream that is cut goes on where it was."""
        return self._client.follow(self.job_id, after)
