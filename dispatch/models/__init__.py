"""Tables of the dispatch plane. No transitions here: `dispatch.authority` writes them."""

from dispatch.models.fleet import CheckFinding, DispatchWorker, KnownAgent, KnownCheck, Leadership, Tick, TurnCounter
from dispatch.models.queue import AdmissionShard, ClaimGate, ClaimLimit, DeadEnvelope, QueuedTurn
from dispatch.models.retention import PruneTotal
from dispatch.models.schedules import Schedule, ScheduleCounter, ScheduleRun
from dispatch.models.usage import ModelTotal, ModelUsage
from dispatch.models.webhooks import WebhookDelivery, WebhookEndpoint, WebhookWatch
from dispatch.models.work import (
    CoalescedRequest,
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
    "CheckFinding",
    "ClaimGate",
    "ClaimLimit",
    "CoalescedRequest",
    "DeadEnvelope",
    "DispatchWorker",
    "KnownAgent",
    "KnownCheck",
    "Leadership",
    "ModelTotal",
    "ModelUsage",
    "Outcome",
    "OutputChunk",
    "PruneTotal",
    "Question",
    "QueuedTurn",
    "Schedule",
    "ScheduleCounter",
    "ScheduleRun",
    "StepResult",
    "Tick",
    "TurnCounter",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookWatch",
    "WorkItem",
    "WorkItemDependency",
    "WorkItemEvent",
]
