"""The client for threads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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


class Client:
    """A caller with one key. Safe to use from many threads; `close` it, or use `with`.

    `key`: without it, the one in the file that AGENT_API_KEY_FILE names. A call that gets 429, 502, 503 or 504, or
    loses its connection, is sent again for up to `retry_for_s` seconds where that cannot do a thing twice.
    Raises ClientMisuse here, ApiError and its classes for refusals, ConnectionLost and BadAnswer.
    """

    def __init__(self, base_url: str, key: str | None = None, *, retry_for_s: float = 60.0) -> None:
        self._access = Access.of(base_url, key)
        self._patience = Patience(for_s=retry_for_s)
        self._http = httpx2.Client(**http.options(self._access))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- jobs ----------------------------------------------------------------------------------------------------------
    def dispatch(self, task: str, **fields: Unpack[DispatchFields]) -> Job:
        """Dispatch one job. A repeat by this client finds the same job; so does yours with an `idempotency_key`."""
        return Job(self, self.run(programs.dispatch(task, fields, self._patience)))

    def dispatch_many(self, jobs: Sequence[DispatchBody]) -> list[Job | ApiError]:
        """Dispatch up to 1,000 jobs; each has its own answer, in order, a refusal among them."""
        answers = self.run(programs.dispatch_many(list(jobs), self._patience))
        return [answer if isinstance(answer, ApiError) else Job(self, answer) for answer in answers]

    def job(self, job_id: str) -> Job:
        """A handle on a job that is known by its id; nothing is asked yet."""
        return Job(self, Handle(job_id=job_id, session_id=None))

    def jobs(
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
        return self.call(
            calls.job_list(
                status=status, session_id=session_id, agent_name=agent_name, kind=kind, limit=limit, cursor=cursor
            )
        )

    # -- sessions and fleet --------------------------------------------------------------------------------------------
    def sessions(
        self,
        *,
        status: str | None = None,
        domain: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> SessionPage:
        """A page of sessions, newest first."""
        return self.call(calls.session_list(status=status, domain=domain, limit=limit, cursor=cursor))

    def session(self, session_id: str) -> SessionDetails:
        return self.call(calls.session_get(session_id))

    def reply(self, session_id: str, text: str | None = None, *, choice: str | None = None) -> ReplyAnswer:
        """Answer the session's open question, by a text or by one of its choices."""
        return self.call(calls.session_reply(session_id, text, choice))

    def health(self) -> Health:
        """The fleet's evidence and totals, also when it is not ready."""
        return self.call(calls.health())

    def topology(
        self,
        *,
        status: str | None = None,
        domain: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> Topology:
        return self.call(calls.topology(status=status, domain=domain, limit=limit, offset=offset))

    # -- running the programs ------------------------------------------------------------------------------------------
    def call(self, call: Call[T]) -> T:
        return self.run(programs.tried(call, self._patience))

    def run(self, program: Program[T]) -> T:
        try:
            step = next(program)
            while True:
                step = program.send(self._perform(step))
        except StopIteration as done:
            answer: T = done.value
            return answer

    def _perform(self, step: Send | Pause) -> Reply | Lost | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            sent = self._http.build_request(**http.request(self._access, step.call))
            return http.reply(self._http.send(sent))
        except http.TransportError as error:
            return http.lost(error)

    def follow(self, job_id: str, after: int) -> Iterator[StreamEvent]:
        program, line = follow(job_id, after, self._patience), _Line(self._http, self._access)
        told: Told = None
        try:
            while True:
                step = program.send(told)
                told = None
                if isinstance(step, Open):
                    told = line.open(step)
                elif isinstance(step, Next):
                    told = line.next()
                elif isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    yield step.event
        except StopIteration:
            return
        finally:
            line.shut()


class _Line:
    """One open stream at a time."""

    def __init__(self, client: httpx2.Client, access: Access) -> None:
        self._http, self._access = client, access
        self._response: httpx2.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def open(self, step: Open) -> Opened | Reply | Lost:
        self.shut()
        try:
            sent = self._http.build_request(**http.stream_request(self._access, step))
            self._response = response = self._http.send(sent, stream=True)
            if http.is_stream(response):
                self._pieces = response.iter_raw()
                return Opened()
            response.read()
            return http.reply(response)
        except http.TransportError as error:
            return http.lost(error)

    def next(self) -> bytes | Lost | None:
        try:
            return next(self._pieces, None)
        except http.TransportError as error:
            return http.lost(error)

    def shut(self) -> None:
        if self._response is not None:
            self._response.close()


class Job:
    """A handle on one job. `session_id` is None when only the id is known."""

    def __init__(self, client: Client, handle: Handle) -> None:
        self._client = client
        self.job_id, self.session_id = handle.job_id, handle.session_id
        self.replayed, self.coalesced = handle.replayed, handle.coalesced

    def __repr__(self) -> str:
        return f"<Job {self.job_id}>"

    def status(self) -> JobState:
        return self._client.call(calls.status(self.job_id))

    def wait(self, timeout: float | None = None) -> JobState:
        """Where it stands as soon as it has ended, or after `timeout` seconds; never an error because time ran out."""
        return self._client.run(programs.wait(self.job_id, timeout, self._client._patience))

    def result(self, timeout: float | None = None) -> Any:
        """What the agent returned, when the job has succeeded. Raises JobFailed, JobUnfinished."""
        return self._client.run(programs.result(self.job_id, timeout, self._client._patience))

    def cancel(self, reason: str = "") -> CancelAnswer:
        return self._client.call(calls.cancel(self.job_id, reason))

    def retry(self, *, deadline_s: float | None = None) -> Job:
        """Run the same job again. Sent once: when its answer is lost, ask for the status."""
        handle = self._client.run(programs.retry(self.job_id, deadline_s, self._client._patience))
        return Job(self._client, handle)

    def explain(self) -> Explanation:
        """Why it is not running."""
        return self._client.call(calls.explain(self.job_id))

    def events(self) -> list[JobEvent]:
        """Its timeline, oldest first."""
        return self._client.call(calls.events(self.job_id))["events"]

    def iterations(self, *, limit: int | None = None, cursor: str | None = None) -> IterationPage:
        """A page of a goal's committed iterations, oldest first."""
        return self._client.call(calls.iterations(self.job_id, limit, cursor))

    def redeliver(self, delivery_id: str) -> Redelivered:
        """Send one of its callbacks again, under the same id."""
        return self._client.call(calls.redeliver(self.job_id, delivery_id))

    def read(self) -> JobDetails:
        return self._client.call(calls.read(self.job_id))

    def stream(self, *, after: int = 0) -> Iterator[StreamEvent]:
        """What it says and where it stands, until it has ended; a stream that is cut goes on where it was."""
        return self._client.follow(self.job_id, after)
