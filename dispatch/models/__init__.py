"""Tables of the dispatch plane. No transitions here: `dispatch.authority` writes them."""

from dispatch.models.fleet import DispatchWorker, KnownAgent, Leadership, Tick, TurnCounter
from dispatch.models.queue import AdmissionShard, ClaimGate, ClaimLimit, DeadEnvelope, QueuedTurn
from dispatch.models.schedules import Schedule
from dispatch.models.work import (
    Outcome,
    OutputChunk,
    Question,
    StepResult,
    WorkItem,
    WorkItemDependency,
    WorkItemEvent,
)

__all__ = [
    "AdmissionShard",
    "ClaimGate",
    "ClaimLimit",
    "DeadEnvelope",
    "DispatchWorker",
    "KnownAgent",
    "Leadership",
    "Outcome",
    "OutputChunk",
    "Question",
    "QueuedTurn",
    "Schedule",
    "StepResult",
    "Tick",
    "TurnCounter",
    "WorkItem",
    "WorkItemDependency",
    "WorkItemEvent",
]
