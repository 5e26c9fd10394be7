"""The Protocols between the parts of dispatch, and the plain records that cross them.

Data flows caller → services → authority → transport → worker → agent and back as these: no Django, SQL or broker here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from dispatch.envelope import AgentTurnEnvelope
from dispatch.spending import Budget, ModelSpend

Fence = tuple[int, int, str]  # (item id, epoch, owner)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The right to run one turn. The fence is (item_id, epoch, owner): the authority refuses any other holder."""

    item_id: int
    epoch: int
    owner: str
    job_id: str
    tenant: str
    session_pk: int
    session_id: str
    session_seq: int
    turn_number: int
    kind: str
    agent_name: str
    attempt: int
    max_attempts: int
    on_worker_lost: str
    deadline: datetime | None
    task: str
    payload: dict[str, Any]
    state: dict[str, Any]
    checkpoint: Any = None
    resumed: bool = False  # it was suspended before: there may be a reply or children to read
    traceparent: str | None = None  # W3C trace context of who dispatched it

    @property
    def fence(self) -> Fence:
        return self.item_id, self.epoch, self.owner


@dataclass(frozen=True, kw_only=True, slots=True)
class Callback:
    """Where a job's caller wants to be told of it, and the endpoint of its tenant that this lies under."""

    endpoint_id: int
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTerms:
    """When to remind of a question, and what answers it when nobody has; in seconds from its asking."""

    remind_after_s: float | None = None
    answer_within_s: float | None = None
    default: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """What a run ended with, ready to be written. `verb` is one of states.Verb."""

    lease: Lease
    verb: str
    result: Any = None  # JSON value, cleaned
    state: dict[str, Any] | None = None  # written on succeeded only; None: it stays as it is
    delay_s: float | None = None  # retry and snooze: due after this many seconds
    code: str | None = None  # states.ErrorCode; for suspend: "input" | "children"
    message: str | None = None
    question: str | None = None
    choices: Sequence[str] | None = None
    terms: AnswerTerms | None = None  # of the question
    wait_for: Sequence[str] = ()  # suspend/children: job ids
    ended: bool = True  # whether the run has really ended; False: it ignores its stop and is settled without
    traceparent: str | None = None  # of the run


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """One settled turn, as the authority wrote it: with a cancel requested, `status` may differ from what was asked."""

    item_id: int
    epoch: int
    status: str
    verb: str
    outcome: str = ""  # of the counter of turns; "" when the turn has not ended


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """The answer of one step: what was settled, whose fence was lost, what was claimed."""

    settled: Sequence[Settled] = ()
    lost: Sequence[Settlement] = ()
    claimed: Sequence[Lease] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Serves:
    """What a consumer runs: lanes it claims from. An empty tuple serves nothing."""

    agents: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RenewResult:
    """`lost`: no longer ours. `cancelled`: still ours, and somebody asked to stop it, with the reason's code."""

    lost: Sequence[int] = ()
    cancelled: Mapping[int, str] = field(default_factory=dict)


class Authority(Protocol):
    """The only writer of a WorkItem's status and lease, as the worker sees it."""

    def step(
        self, *, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult: ...
    def claim(self, job_id: str, *, owner: str, ttl_s: float, serves: Serves) -> Lease | str: ...
    def renew(self, *, ttl_s: float, leases: Sequence[Fence]) -> RenewResult: ...
    def cancels(self, *, leases: Sequence[Fence]) -> RenewResult: ...
    def stopped(self, *, lease: Lease) -> None: ...
    def recover(self) -> None:
        """Drop this thread's connections after an error; the next call opens new ones."""
        ...

    def release(self) -> None:
        """Give back what this thread holds of the store before it waits."""
        ...


class TurnStore(Protocol):
    """The durable side of one running turn. Every write is fenced: it raises LeaseLost when the lease is not held."""

    def history(self, lease: Lease) -> list[dict[str, Any]]:
        """Earlier turns of the session that succeeded, oldest first: turn_number, job_id, agent_name, task, result."""
        ...

    def checkpoint(self, lease: Lease, value: Any) -> None: ...
    def step_load(self, lease: Lease, name: str) -> tuple[bool, Any]:
        """(True, stored result) or (False, None); renews the lease and raises LeaseLost if it is not held."""
        ...

    def step_save(self, lease: Lease, name: str, result: Any) -> Any: ...
    def emit(self, lease: Lease, kind: str, data: dict[str, Any]) -> None:
        """Append one output chunk. kind: text | progress."""
        ...

    def reply(self, lease: Lease) -> str | None: ...
    def children(self, lease: Lease) -> list[dict[str, Any]]:
        """Jobs that this turn dispatched: job_id, session_id, status, result, error."""
        ...

    def dispatch_child(self, lease: Lease, job_key: str, body: dict[str, Any]) -> str:
        """Dispatch a child job under the fence; answers its id, which derives from the parent and `job_key`."""
        ...

    def model_begins(self, lease: Lease, model: str, budget: Budget) -> tuple[str, int, int] | None:
        """Count a request that is about to be sent; answers instead the limit that is used up: key, value, spent."""
        ...

    def model_ended(self, lease: Lease, model: str, spend: ModelSpend) -> None: ...

    def release(self) -> None:
        """Give back what this thread holds of the store. Called when a run has ended."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueRow:
    """One unfinished item in the queue. `rank`: unix time since it is claimable, plus 5 min a step of priority."""

    item_id: int
    job_id: str
    tenant: str
    kind: str
    agent_name: str
    state: int
    rank: float
    priority: int
    due_at: float | None = None
    deadline: float | None = None
    enqueued_at: float = 0.0
    published_at: float | None = None  # when its envelope was last sent, where there are envelopes; claimable rows only


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """An item id in hand, with the receipt that acks or releases it."""

    item_id: int
    tenant: str
    receipt: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates:
    """What `claim_gates` shuts."""

    fleet: bool = False
    kinds: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What a transport can do; callers ask this and never its name."""

    joins_state_transaction: bool  # publish and ack commit with the state store
    exact_admission: bool  # compare-and-admit is atomic
    durable: bool
    cross_host: bool
    rows_in_store: bool = False  # its rows are the table agent_dispatch_queue of the state store
    settles_in_one_statement: bool = False  # the state store has the functions that a migration installs


class Listener(Protocol):
    """One loop's ear: `wait` answers True when woken, False when the time ran out.

    It may say True once when it begins to listen, also anew: what came before then it has missed.
    """

    def wait(self, timeout_s: float) -> bool: ...
    def close(self) -> None: ...


class Transport(Protocol):
    """Moves references. It can lose or repeat a message without harm: the authority decides.

    Every write happens inside `transaction()`, which is taken before the state store's own transaction and ends after
    it. `depth` raises QueueUnavailable rather than answer a number it does not know.
    """

    name: str  # label of metrics: sqlite | postgres | kafka | memory
    backend_name: str  # SQLiteQueueBackend | PostgresQueueBackend | KafkaQueueBackend | MemoryQueueBackend
    capabilities: Capabilities

    @property
    def envelopes(self) -> Envelopes | None:
        """Where a turn is announced by an envelope that a broker carries; None where its row alone wakes a worker."""
        ...

    def transaction(self) -> AbstractContextManager[None]: ...
    def publish(self, rows: Sequence[QueueRow], *, bound: int | None = None) -> None:
        """Insert or overwrite rows. With a bound: raise QueueFull and insert nothing when they would exceed it."""
        ...

    def promote(self, moves: Sequence[tuple[int, int, float | None, float | None]]) -> None:
        """Set (item_id, state, due_at, rank) on rows that exist; a rank of None keeps the row's place."""
        ...

    def receive(self, *, want: int, serves: Serves, gates: Gates, cursor: str, now: float) -> list[Delivery]:
        """Take up to `want` claimable rows, tenants in turn after `cursor`, best rank first; they become CLAIMED."""
        ...

    def ack(self, item_ids: Sequence[int]) -> None: ...
    def release(self, item_ids: Sequence[int], *, delay_s: float = 0.0) -> None: ...
    def extend(self, item_ids: Sequence[int]) -> None: ...
    def rows(self, item_ids: Sequence[int]) -> dict[int, QueueRow]: ...
    def due(self, *, now: float, limit: int) -> list[int]:
        """Rows that wait for a time that has come."""
        ...

    def expired(self, *, now: float, limit: int) -> list[int]:
        """Unclaimed rows past their deadline."""
        ...

    def page(self, *, after: int, limit: int) -> list[QueueRow]:
        """All rows by item id, for the repair tick."""
        ...

    def depth(self) -> int: ...
    def room(self, bound: int) -> int:
        """How many rows may still be published under the bound; a look, which publish with a bound holds to."""
        ...

    def make_room(self, count: int, bound: int) -> None:
        """After the store's own bound refused a publication: raise QueueFull, or let it be tried again."""
        ...

    @property
    def rebuilding(self) -> bool:
        """A fresh queue that has not been filled from the state store yet."""
        ...

    def rebuilt(self) -> None: ...
    def wait(self, timeout_s: float) -> bool: ...
    def wake(self) -> None: ...
    def listener(self) -> Listener: ...
    def close(self) -> None: ...


class RowStore(Transport, Protocol):
    """A transport whose rows can stand behind a broker's envelopes: they are claimed by id, and say what was sent."""

    def take(self, item_ids: Sequence[int]) -> list[int]:
        """Which of these rows were claimable; they become CLAIMED. Rows that another transaction holds are left."""
        ...

    def published(self, item_ids: Sequence[int], *, at: float) -> None:
        """Note that envelopes of these were sent; only of rows that are claimable."""
        ...

    def unpublished(self, *, before: float, limit: int) -> list[QueueRow]:
        """Claimable rows of which no envelope was sent, or none since `before`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Message:
    """A delivery of a broker: an envelope, or the bytes of what is none, and the place that is acked for it."""

    envelope: AgentTurnEnvelope | None
    raw: bytes
    partition: int
    offset: int
    assignment: int  # which assignment of the partition brought it: only under that one it may be acked


class Inbox(Protocol):
    """What a process has in hand: taken to be judged, then acked, put back, or held while the turn runs."""

    @property
    def listening(self) -> bool: ...  # whether deliveries come in; a worker that runs once takes rows instead
    def idle_s(self) -> float: ...  # how long there has been nothing in hand
    def take(self, count: int, cursor: str) -> list[Message]:
        """Up to `count` deliveries, tenants in turn after `cursor`, best rank first; broken ones before all."""
        ...

    def put_back(self, messages: Sequence[Message], *, soon: bool = False) -> None:
        """`soon`: somebody was at their rows for a moment; whoever waits for news is woken for them shortly."""
        ...

    def ack(self, messages: Sequence[Message]) -> None: ...
    def hold(self, fence: Fence, message: Message, *, ttl_s: float) -> None:
        """Keep the delivery unacked while the lease is renewed."""
        ...

    def renewed(self, fences: Sequence[Fence], *, ttl_s: float) -> None: ...
    def settled(self, fences: Sequence[Fence]) -> None:
        """Ack what was held for these: their turns' ends are committed."""
        ...

    def lost(self, fences: Sequence[Fence]) -> None:
        """These leases are not held any more: the deliveries go back in hand and are judged anew."""
        ...


class Envelopes(Protocol):
    """What a broker adds to the rows: an envelope goes out for each turn after its commit, deliveries come in."""

    @property
    def inbox(self) -> Inbox: ...
    def open(self) -> None:
        """Reach the broker and make the topic ready. Raises TaskQueueUnavailable, which names the setting."""
        ...

    def refuse_when_blind(self) -> None:
        """Raise QueueUnavailable while the depth cannot be read; a look at most once a second."""
        ...

    def send(self, envelopes: Sequence[AgentTurnEnvelope], *, again: bool = False) -> frozenset[str]:
        """Send, and wait a bounded time for the broker's word; answers the job ids that it did not confirm."""
        ...

    def post(self, envelopes: Sequence[AgentTurnEnvelope], confirmed: Callable[[str], None]) -> None:
        """Send, and wait for nothing: `confirmed` is called with each job id once the broker has its envelope."""
        ...

    def parked(self, count: int) -> None: ...  # deliveries acked because their rows say what they wait for

    def take(self, item_ids: Sequence[int]) -> list[int]: ...
    def published(self, item_ids: Sequence[int], *, at: float) -> None: ...
    def unpublished(self, *, before: float, limit: int) -> list[QueueRow]: ...
