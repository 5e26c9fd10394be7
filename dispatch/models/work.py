"""The work itself: WorkItem is the only authority over a job's life; the rest of this module hangs on it."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from dispatch import states
from sessions_app.models import Session


class WorkItem(models.Model):
    """One job. The fence of a holder is (id, epoch, owner); the epoch only grows, over the whole life of the row.

    `due_at` is the time before which the turn must not start (a later `run_at`, or a retry's backoff).
    """

    job_id = models.CharField(max_length=64)  # unique by a constraint: `unique=True` would bring an index for LIKE
    tenant = models.CharField(max_length=200)
    session = models.ForeignKey(
        Session, on_delete=models.DO_NOTHING, db_constraint=False, db_column="session_pk", db_index=False
    )
    session_seq = models.BigIntegerField()
    kind = models.CharField(max_length=20)
    agent_name = models.CharField(max_length=200)
    priority = models.SmallIntegerField(default=2)
    status = models.CharField(max_length=20)
    attempt = models.IntegerField(default=0)
    max_attempts = models.IntegerField(default=3)
    on_worker_lost = models.CharField(max_length=10, default="retry")

    epoch = models.IntegerField(default=0)
    owner = models.CharField(max_length=64, null=True)  # null and not "": the CHECK and the fence read it
    lease_expires_at = models.DateTimeField(null=True)

    run_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    task = models.TextField()
    payload = models.JSONField(default=dict)
    metadata = models.JSONField(default=dict)
    goal = models.JSONField(null=True)
    fingerprint = models.JSONField(null=True)  # a digest per field of the body as sent
    checkpoint_id = models.CharField(max_length=64, blank=True, default="")
    checkpoint = models.JSONField(null=True)
    traceparent = models.CharField(max_length=55, null=True)  # of who dispatched it, while traces are kept
    parent_item_id = models.BigIntegerField(null=True)  # the turn that dispatched this child
    suspended_for = models.CharField(
        max_length=10, blank=True, default=""
    )  # input | children, while or after suspended

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_code = models.CharField(max_length=20, blank=True, default="")
    cancel_reason = models.CharField(max_length=500, blank=True, default="")
    cancel_seen_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "work_items"
        constraints = [
            models.UniqueConstraint(fields=["job_id"], name="work_items_job_id"),
            models.UniqueConstraint(fields=["session", "session_seq"], name="work_items_place"),
            # I2: the database refuses a second live lease of a session; rescue walks this index too
            models.UniqueConstraint(
                fields=["session"], condition=Q(status__in=["leased", "running"]), name="work_items_one_live"
            ),
            models.CheckConstraint(condition=Q(status__in=states.STATUSES), name="work_items_status"),
            models.CheckConstraint(
                condition=Q(owner__isnull=False, status__in=["leased", "running"])
                | (Q(owner__isnull=True) & ~Q(status__in=["leased", "running"])),
                name="work_items_owner_iff_live",
            ),
            models.CheckConstraint(
                condition=Q(finished_at__isnull=False, status__in=sorted(states.TERMINAL))
                | (Q(finished_at__isnull=True) & ~Q(status__in=sorted(states.TERMINAL))),
                name="work_items_finished_iff_final",
            ),
            models.CheckConstraint(condition=Q(on_worker_lost__in=["retry", "fail"]), name="work_items_on_worker_lost"),
        ]
        indexes = [
            # job lists: newest first in one tenant, by keyset
            models.Index(fields=["tenant", "-id"], name="work_items_list"),
            # unfinished items: rebuild and repair of the queue, health; written at admission and at the end only
            models.Index(fields=["id"], condition=Q(finished_at__isnull=True), name="work_items_unfinished"),
            # goals by status, newest first: the health's active ones, the console's filter
            models.Index(fields=["status", "-id"], condition=Q(kind=states.GOAL_LOOP), name="work_items_goals"),
            # children of a turn
            models.Index(
                fields=["parent_item_id"], condition=Q(parent_item_id__isnull=False), name="work_items_children"
            ),
            # children that have not ended: the tick that cancels those of a cancelled parent
            models.Index(
                fields=["id"],
                condition=Q(parent_item_id__isnull=False, finished_at__isnull=True),
                name="work_items_open_children",
            ),
            # what ended badly is rare among what ended: the console's filters
            models.Index(
                fields=["status", "id"], condition=Q(status__in=sorted(states.RETRYABLE)), name="work_items_bad"
            ),
        ]

    def __str__(self) -> str:
        return f"job {self.job_id}"

    @property
    def work_item_ref(self) -> str:
        """`workitem:orchestrator:<job_id>` or `workitem:goal:<job_id>`."""
        return f"workitem:{'goal' if self.kind == states.GOAL_LOOP else 'orchestrator'}:{self.job_id}"


class WorkItemDependency(models.Model):
    """`work_item` waits for `parent`: before it may start, or (kind child) suspended until its children end."""

    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE, related_name="waits_for")
    parent = models.ForeignKey(WorkItem, on_delete=models.CASCADE, related_name="waited_by")
    kind = models.CharField(max_length=10, default="depends")  # depends | child

    class Meta:
        db_table = "work_item_dependencies"
        constraints = [
            models.UniqueConstraint(fields=["work_item", "parent"], name="work_item_dependencies_once"),
            models.CheckConstraint(condition=~Q(work_item=models.F("parent")), name="work_item_dependencies_not_self"),
        ]

    def __str__(self) -> str:
        return f"{self.work_item_id} waits for {self.parent_id}"


class CoalescedRequest(models.Model):
    """A dispatch that became part of an unstarted turn (`on_busy: coalesce`) instead of a job of its own.

    `job_id` is the one that it would have got: derived from its key, so a repeat finds the job that it went into.
    """

    job_id = models.CharField(max_length=64)  # unique by a constraint: `unique=True` would bring an index for LIKE
    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE, db_constraint=False, db_index=False)
    fingerprint = models.JSONField(null=True)

    class Meta:
        db_table = "coalesced_requests"
        constraints = [models.UniqueConstraint(fields=["job_id"], name="coalesced_requests_once")]
        indexes = [models.Index(fields=["work_item"], name="coalesced_requests_item")]  # what went into a job

    def __str__(self) -> str:
        return self.job_id


class WorkItemEvent(models.Model):
    """One transition: the job's timeline."""

    work_item = models.ForeignKey(
        WorkItem, on_delete=models.CASCADE, db_constraint=False, related_name="events", db_index=False
    )
    at = models.DateTimeField()
    event = models.CharField(max_length=30)
    from_status = models.CharField(max_length=20, blank=True, default="", db_default="")
    to_status = models.CharField(max_length=20, blank=True, default="", db_default="")
    attempt = models.IntegerField(default=0, db_default=0)
    worker = models.CharField(max_length=64, blank=True, default="", db_default="")
    epoch = models.IntegerField(default=0, db_default=0)
    reason = models.TextField(blank=True, default="", db_default="")

    class Meta:
        db_table = "work_item_events"
        indexes = [models.Index(fields=["work_item", "id"], name="work_item_events_item")]  # a job's timeline

    def __str__(self) -> str:
        return self.event


class Outcome(models.Model):
    """What a run ended with, for good. The current one is that of the item's own epoch."""

    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE, db_constraint=False, db_index=False)
    epoch = models.IntegerField()
    status = models.CharField(max_length=20)
    result = models.JSONField(null=True)
    error_code = models.CharField(max_length=30, blank=True, default="", db_default="")
    error_message = models.TextField(blank=True, default="", db_default="")
    created_at = models.DateTimeField()

    class Meta:
        db_table = "outcomes"
        constraints = [models.UniqueConstraint(fields=["work_item", "epoch"], name="outcomes_one_per_epoch")]

    def __str__(self) -> str:
        return f"outcome:{self.pk}"


class StepResult(models.Model):
    """The stored result of a durable step: a later attempt of the turn reads it and does not run the step again."""

    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE)
    name = models.CharField(max_length=220)  # an agent's own name, in a goal loop after the iteration's number
    epoch = models.IntegerField()
    result = models.JSONField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "step_results"
        constraints = [models.UniqueConstraint(fields=["work_item", "name"], name="step_results_once")]

    def __str__(self) -> str:
        return self.name


class OutputChunk(models.Model):
    """What a running turn says before it ends: text or progress, in order of id."""

    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE, db_constraint=False, db_index=False)
    epoch = models.IntegerField()
    kind = models.CharField(max_length=10)  # text | progress
    data = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        db_table = "output_chunks"
        indexes = [models.Index(fields=["work_item", "id"], name="output_chunks_item")]  # a stream, resumed by id

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class Questions(models.QuerySet["Question"]):
    """Questions by whether they still want an answer."""

    def still_open(self) -> Self:
        return self.filter(answered_at=None, withdrawn_at=None)


class Question(models.Model):
    """A suspended turn asks a person; a reply makes it ready again."""

    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE)
    session = models.ForeignKey(
        Session, on_delete=models.CASCADE, db_constraint=False, db_column="session_pk", db_index=False
    )
    epoch = models.IntegerField()
    question = models.TextField()
    choices = models.JSONField(null=True)
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    answer = models.TextField(blank=True, default="")
    answered_by = models.CharField(max_length=200, blank=True, default="")
    withdrawn_at = models.DateTimeField(null=True)  # the turn was cancelled instead
    remind_at = models.DateTimeField(null=True)
    reminded_at = models.DateTimeField(null=True)
    answer_by = models.DateTimeField(null=True)  # then the default answers
    default_answer = models.TextField(null=True)
    due_at = models.DateTimeField(null=True)  # the earlier of the two that is still to come

    objects = Questions.as_manager()

    class Meta:
        db_table = "questions"
        constraints = [models.UniqueConstraint(fields=["work_item", "epoch"], name="questions_one_per_run")]
        indexes = [
            # the open question of a session
            models.Index(
                fields=["session"],
                condition=Q(answered_at__isnull=True, withdrawn_at__isnull=True),
                name="questions_open",
            ),
            # those whose time comes
            models.Index(
                fields=["due_at"],
                condition=Q(due_at__isnull=False, answered_at__isnull=True, withdrawn_at__isnull=True),
                name="questions_due",
            ),
        ]

    def __str__(self) -> str:
        return self.question[:80]
