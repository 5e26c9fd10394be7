"""What is remembered: sessions, their turns, goals, and who did what on purpose.

Ids of work items are plain numbers here: this floor knows nothing of dispatch.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, NullIf

from sessions_app import states


def _choices(values: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(v, v.replace("_", " ")) for v in values]


class Session(models.Model):
    """The ordering scope and memory of one conversation; its identity is (tenant, session_id).

    `head_seq` is the place of the first unfinished turn (null: none), `last_seq` of the last admitted one. `desired` is
    what somebody wants; `status` is what is true. `dispatch.authority` alone writes seq, head, turn number and state.
    """

    tenant = models.CharField(max_length=200)
    session_id = models.CharField(max_length=200)
    status = models.CharField(
        max_length=20, choices=_choices(states.STATUSES), default=states.IDLE, db_default=states.IDLE
    )
    metadata = models.JSONField(default=dict)
    domain = models.GeneratedField(
        expression=Coalesce(
            NullIf(KT("metadata__domain"), Value("")),
            NullIf(KT("metadata__team"), Value("")),
            NullIf(F("tenant"), Value("")),
            Value("default"),
            output_field=models.TextField(),
        ),
        output_field=models.TextField(),
        db_persist=True,
    )
    state = models.JSONField(default=dict)
    background = models.BooleanField(default=False, db_default=False)

    desired = models.CharField(
        max_length=10, choices=_choices(states.DESIRES), default=states.RUN, db_default=states.RUN
    )
    desired_by = models.CharField(max_length=200, blank=True, default="", db_default="")
    desired_reason = models.CharField(max_length=500, blank=True, default="", db_default="")
    desired_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True)
    seen_by = models.CharField(max_length=64, null=True, blank=True)  # the token of the worker
    stopped_at = models.DateTimeField(null=True, blank=True)
    kill_through_seq = models.BigIntegerField(null=True, blank=True)

    last_seq = models.BigIntegerField(default=0, db_default=0)
    head_seq = models.BigIntegerField(null=True, blank=True)
    turn_number = models.IntegerField(default=0, db_default=0)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "sessions"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "session_id"], name="sessions_identity"),
            models.CheckConstraint(condition=Q(status__in=states.STATUSES), name="sessions_status"),
            models.CheckConstraint(condition=Q(desired__in=states.DESIRES), name="sessions_desired"),
            models.CheckConstraint(
                condition=Q(head_seq__isnull=True) | Q(head_seq__lte=F("last_seq")), name="sessions_head"
            ),
        ]
        indexes = [
            # health and topology: counts of all sessions, from a small index instead of the table. The only one that
            # has the status: it changes when a session gets its first turn, and when its last one ends
            models.Index(fields=["domain", "status"], name="sessions_counts"),
            # topology: pages in order, all tenants or one domain
            models.Index(fields=["domain", "session_id", "id"], name="sessions_by_domain"),
            # topology of one tenant, and its counts
            models.Index(fields=["tenant", "domain", "session_id"], name="sessions_by_tenant"),
            # kills that are not finished
            models.Index(fields=["id"], condition=Q(kill_through_seq__isnull=False), name="sessions_kill"),
        ]

    def __str__(self) -> str:
        return f"session {self.session_id}"


class Turn(models.Model):
    """One run of an agent in a session. The runs of one turn share its number and differ by epoch."""

    session = models.ForeignKey(
        Session, on_delete=models.CASCADE, db_constraint=False, db_column="session_pk", db_index=False
    )
    turn_number = models.IntegerField()
    epoch = models.IntegerField()
    work_item_id = models.BigIntegerField()
    status = models.CharField(max_length=20)
    attempt = models.IntegerField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "turns"
        constraints = [
            models.UniqueConstraint(fields=["session", "turn_number", "epoch"], name="turns_one_per_run"),
        ]
        indexes = [
            # the latest run of a work item, for session pages
            models.Index(fields=["work_item_id", "epoch"], name="turns_item"),
        ]

    def __str__(self) -> str:
        return f"turn {self.turn_number}"


class Goal(models.Model):
    """An objective with its validation, and how far its loop is; its WorkItem's life is the only one.

    `max_iterations` grows when an exhausted goal is retried: iterations are counted on. What the last committed
    iteration left, result and session state, is where the next one goes on.
    """

    tenant = models.CharField(max_length=200)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_constraint=False, db_column="session_pk")
    work_item_id = models.BigIntegerField(unique=True)
    job_id = models.CharField(max_length=64, unique=True)
    objective = models.TextField()
    validation = models.JSONField(null=True)
    constraints = models.JSONField(null=True)
    max_iterations = models.IntegerField(default=10)
    iteration = models.IntegerField(default=0)  # the last committed one
    last_validation = models.JSONField(null=True)
    last_result = models.JSONField(null=True)
    state = models.JSONField(null=True)
    passed = models.BooleanField(default=False)
    spent_s = models.FloatField(default=0.0)  # what committed iterations took, since the last manual retry
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "goals"
        indexes = [
            models.Index(fields=["tenant", "-id"], name="goals_tenant")
        ]  # health: goals kept; the console's list

    def __str__(self) -> str:
        return self.job_id


class GoalIteration(models.Model):
    """One iteration of a goal that was judged and committed."""

    work_item_id = models.BigIntegerField()
    iteration = models.IntegerField()
    epoch = models.IntegerField()
    checkpoint_id = models.CharField(max_length=64)
    passed = models.BooleanField()
    validation = models.JSONField()
    result_excerpt = models.TextField()
    seconds = models.FloatField()  # agent and validation
    finished_at = models.DateTimeField()

    class Meta:
        db_table = "goal_iterations"
        constraints = [
            models.UniqueConstraint(fields=["work_item_id", "iteration"], name="goal_iterations_once"),
        ]

    def __str__(self) -> str:
        return f"iteration {self.iteration}"


class AuditEntry(models.Model):
    """Somebody steered something on purpose."""

    at = models.DateTimeField()
    actor_kind = models.CharField(max_length=20)
    actor = models.CharField(max_length=200)
    tenant = models.CharField(max_length=200, blank=True)
    verb = models.CharField(max_length=40)
    object_type = models.CharField(max_length=40)
    object_id = models.CharField(max_length=200)
    reason = models.CharField(max_length=500, blank=True)
    result = models.CharField(max_length=40)
    request_id = models.CharField(max_length=100, blank=True)

    class Meta:
        db_table = "audit_entries"
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["tenant", "-id"], name="audit_tenant"),  # the audit page, newest first
            models.Index(fields=["object_id", "-id"], name="audit_object"),  # what was done to one thing
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.object_id}"
