"""What retention has done."""

from __future__ import annotations

from django.db import models


class PruneTotal(models.Model):
    """Rows of a table that retention has deleted, since the store was made. Each batch adds to it in its own commit."""

    table = models.CharField(max_length=64, unique=True)
    rows = models.BigIntegerField(default=0)

    class Meta:
        db_table = "prune_totals"

    def __str__(self) -> str:
        return f"{self.table}: {self.rows}"
