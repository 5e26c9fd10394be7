"""Admission on Postgres: what has no parents, goal, callback or wish about a busy session goes in by one statement."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

from django.db import connection, transaction

from dispatch.authority.statements import Statements, to_json
from dispatch.authority.submit import NewItem, Submission, Submitted, session_metadata
from dispatch.errors import QueueFull

SQL = Statements("enqueue.postgres.sql")


def is_plain(item: NewItem) -> bool:
    return not item.dependencies and item.goal is None and item.on_busy == "enqueue" and item.callback is None


class PostgresSubmission(Submission):
    _fitted = False

    def submit(self, items: Sequence[NewItem]) -> list[Submitted]:
        """As in Submission; the first call of a process gives the shards its bound: they remember an older one."""
        if not self._fitted and not connection.in_atomic_block:
            with suppress(QueueFull):
                self._store.transport.make_room(0, self._max_depth)
            self._fitted = True
        return super().submit(items)

    def _try(self, items: Sequence[NewItem]) -> list[Submitted]:
        if not all(map(is_plain, items)):
            return super()._try(items)
        known = self._existing(items)
        fresh: dict[str, NewItem] = {}
        for item in items:
            if item.job_id not in known:
                fresh.setdefault(item.job_id, item)
        room = len(fresh) if len(items) == 1 else self._store.transport.room(self._max_depth)
        admitted = list(fresh.values())[:room]
        made = self._insert(admitted)
        answers = []
        for item in items:
            if item.job_id in made:
                first = fresh.pop(item.job_id, None) is item
                answers.append(_submitted(item, made[item.job_id], fresh=first))
            elif item.job_id in known:
                answers.append(known[item.job_id])
            else:
                answers.append(Submitted(job_id=item.job_id, session_id=item.session_id, error=QueueFull()))
        return answers

    @staticmethod
    def _insert(items: Sequence[NewItem]) -> dict[str, int]:
        """{job id: item id}, in one commit. The bound is the shards' CHECK."""
        if not items:
            return {}
        # a refusal must not break a caller's own transaction
        with transaction.atomic() if connection.in_atomic_block else nullcontext():
            if len(items) == 1:
                ((item_id,),) = SQL.run("enqueue", _row(items[0]))
                return {items[0].job_id: item_id}
            rows = [_row(item) for item in items]
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            return {job_id: item_id for item_id, job_id, _ in SQL.run("enqueue_many", columns)}


def _submitted(item: NewItem, item_id: int, *, fresh: bool) -> Submitted:
    return Submitted(
        job_id=item.job_id,
        session_id=item.session_id,
        item_id=item_id,
        existing=not fresh,
        fingerprint=None if fresh else item.fingerprint,
    )


def _row(item: NewItem) -> dict[str, Any]:
    return {
        "job_id": item.job_id,
        "tenant": item.tenant,
        "session_id": item.session_id,
        "session_metadata": to_json(session_metadata(item.metadata)),
        "background": bool(item.metadata.get("background", False)),
        "kind": item.kind,
        "agent_name": item.agent_name,
        "priority": item.priority,
        "max_attempts": item.max_attempts,
        "on_worker_lost": item.on_worker_lost,
        "run_at": item.run_at,
        "deadline": item.deadline,
        "task": item.task,
        "payload": to_json(item.payload),
        "metadata": to_json(item.metadata),
        "fingerprint": None if item.fingerprint is None else to_json(item.fingerprint),
        "parent": item.parent_item_id,
        "traceparent": item.traceparent,
    }
