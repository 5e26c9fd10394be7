"""What turns spend on models."""

from __future__ import annotations

from django.db import models

from dispatch.models.work import WorkItem


class ModelUsage(models.Model):
    """What one run of a job spent on one model, added up request by request while it runs.

    A request is counted before it is sent. `unpriced` are those whose cost is not known (yet): `cost` is that of the
    others, None while there are none.
    """

    work_item = models.ForeignKey(WorkItem, on_delete=models.CASCADE, db_constraint=False, db_index=False)
    epoch = models.IntegerField()
    session_pk = models.BigIntegerField()
    tenant = models.CharField(max_length=200)
    agent_name = models.CharField(max_length=200)
    model = models.CharField(max_length=200)
    requests = models.IntegerField(default=0)
    unpriced = models.IntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    tool_calls = models.IntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=9, null=True)

    class Meta:
        db_table = "model_usage"
        constraints = [
            models.UniqueConstraint(fields=["work_item", "epoch", "model"], name="model_usage_once"),
            models.CheckConstraint(
                condition=models.Q(unpriced__gte=0, requests__gte=models.F("unpriced")), name="model_usage_priced"
            ),
        ]
        indexes = [models.Index(fields=["session_pk"], name="model_usage_session")]  # what a session spent

    def __str__(self) -> str:
        return f"{self.model}: {self.requests}"


class ModelTotal(models.Model):
    """What an agent has asked of models since the store was made; pruning never touches it."""

    agent_name = models.CharField(max_length=200)
    requests = models.BigIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)

    class Meta:
        db_table = "model_totals"
        constraints = [models.UniqueConstraint(fields=["agent_name"], name="model_totals_once")]

    def __str__(self) -> str:
        return self.agent_name
