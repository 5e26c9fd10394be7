"""The life of a WorkItem, written down once: statuses, transitions, refusals, and what a queue row says.

    submitted ──► ready ──► leased ──► running ──► succeeded
        │           ▲  ▲        │          ├──────► failed
        │           │  └────────┴──────────┤
        └───────────┤                      ├──────► cancelled
                    │                      ├──────► dead_letter
                    └──── suspended ◄──────┘

Everything here is pure: no clock, no database.
"""

from __future__ import annotations

SUBMITTED = "submitted"
READY = "ready"
LEASED = "leased"
RUNNING = "running"
SUSPENDED = "suspended"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELLED = "cancelled"
DEAD_LETTER = "dead_letter"

STATUSES = (SUBMITTED, READY, LEASED, RUNNING, SUSPENDED, SUCCEEDED, FAILED, CANCELLED, DEAD_LETTER)
TERMINAL = frozenset({SUCCEEDED, FAILED, CANCELLED, DEAD_LETTER})
LIVE = frozenset({LEASED, RUNNING})
QUEUED = frozenset({SUBMITTED, READY})
UNFINISHED = frozenset(STATUSES) - TERMINAL
RETRYABLE = frozenset({FAILED, CANCELLED, DEAD_LETTER})

TRANSITIONS: dict[str, frozenset[str]] = {
    SUBMITTED: frozenset({READY, CANCELLED}),
    READY: frozenset({LEASED, RUNNING, CANCELLED}),
    LEASED: frozenset({RUNNING, READY, SUCCEEDED, FAILED, CANCELLED, DEAD_LETTER, SUSPENDED}),
    RUNNING: frozenset({READY, SUCCEEDED, FAILED, CANCELLED, DEAD_LETTER, SUSPENDED}),
    SUSPENDED: frozenset({READY, CANCELLED}),
    SUCCEEDED: frozenset(),
    # the manual retry is the one way back
    FAILED: frozenset({READY, SUBMITTED}),
    CANCELLED: frozenset({READY, SUBMITTED}),
    DEAD_LETTER: frozenset({READY, SUBMITTED}),
}

# What a caller sees.
PENDING = "pending"
PUBLIC_STATUSES = (PENDING, RUNNING, SUSPENDED, SUCCEEDED, FAILED, CANCELLED, DEAD_LETTER)
_PUBLIC = {SUBMITTED: PENDING, READY: PENDING, LEASED: PENDING}


def public_status(status: str) -> str:
    return _PUBLIC.get(status, status)


def stored_statuses(public: str) -> tuple[str, ...]:
    """The stored statuses that a caller sees as `public`."""
    return tuple(s for s in STATUSES if public_status(s) == public)


REMINDER = "reminder"  # an event that moves nothing: a question waits for its answer

ORCHESTRATOR_TASK = "orchestrator_task"
GOAL_LOOP = "goal_loop"
KINDS = (ORCHESTRATOR_TASK, GOAL_LOOP)

PRIORITIES = ("critical", "high", "normal", "low")
AGING_STEP_S = 300  # a queued session gains one step of priority in this time


class Refusal:
    """Why a claim was refused; the same words answer "why is my turn not running?"."""

    TERMINAL = "terminal"
    LEASED_ELSEWHERE = "leased_elsewhere"
    BEHIND_TURN = "behind_turn"
    NOT_DUE = "not_due"
    WAITING_DEPENDENCY = "waiting_dependency"
    SUSPENDED = "suspended"
    SESSION_PAUSED = "session_paused"
    LIMITED = "limited"
    EXPIRED = "expired"
    NO_AGENT = "no_agent"
    TENANT_MISMATCH = "tenant_mismatch"
    UNKNOWN = "unknown"


REFUSALS = tuple(v for k, v in vars(Refusal).items() if k.isupper())


class Verb:
    """What a settlement asks for. The last four return the turn to the queue (or park it)."""

    SUCCEEDED = SUCCEEDED
    FAILED = FAILED
    CANCELLED = CANCELLED
    DEAD_LETTER = DEAD_LETTER
    RETRY = "retry"
    SNOOZE = "snooze"
    SUSPEND = "suspend"
    HANDBACK = "handback"


FINAL_VERBS = frozenset({SUCCEEDED, FAILED, CANCELLED, DEAD_LETTER})
NO_ATTEMPT_VERBS = frozenset({Verb.SNOOZE, Verb.SUSPEND, Verb.HANDBACK})


class ErrorCode:
    """`error.code` of a job that did not succeed."""

    AGENT_ERROR = "agent_error"
    DISCARDED = "discarded"
    BUDGET_EXCEEDED = "budget_exceeded"
    WORKER_LOST = "worker_lost"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DEPENDENCY = "dependency"
    NOT_VALIDATED = "not_validated"


class QueueState:
    """What a queue row says. Only CLAIMABLE is in the claim index; SUSPENDED is not counted in depth."""

    BEHIND = 0
    CLAIMABLE = 1
    DUE_LATER = 2
    CLAIMED = 3
    PAUSED = 4
    WAITING = 5
    SUSPENDED = 6


def queue_state(*, status: str, is_head: bool, desired: str, due_later: bool) -> int:
    """Derive what the queue row of an unfinished item must say; the row is a projection of the state store."""
    if status in LIVE:
        return QueueState.CLAIMED
    if status == SUSPENDED:
        return QueueState.SUSPENDED
    if status == SUBMITTED:
        return QueueState.WAITING
    if not is_head:
        return QueueState.BEHIND
    if desired == "pause":
        return QueueState.PAUSED
    return QueueState.DUE_LATER if due_later else QueueState.CLAIMABLE


def session_after(status: str, *, desired: str, head_status: str | None, asks: bool) -> str:
    """What a session's status becomes when its head is known; used by the cold paths."""
    if desired == "pause":
        return "pause_requested" if head_status in LIVE else "paused"
    if head_status is None:
        return status if status in ("failed", "cancelled") else "idle"
    if desired == "kill" and head_status in LIVE:
        return "kill_requested"
    if head_status == SUSPENDED and asks:
        return "needs_input"
    return "active"


# The outcome label of agent_utilities_dispatch_turns_total.
COUNTER_OUTCOMES = ("completed", "failed", "skipped", "expired", "cancelled")
# The counters of agent_utilities_dispatch_goal_iterations_total, by its label.
ITERATIONS = {"passed": "iteration_passed", "not_passed": "iteration_missed"}


def counter_outcome(status: str, code: str | None) -> str:
    if status == SUCCEEDED:
        return "completed"
    if status == CANCELLED:
        return "expired" if code == ErrorCode.EXPIRED else "cancelled"
    return "failed"
