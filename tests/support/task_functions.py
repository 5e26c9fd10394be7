"""Tasks of a user's own app, and what is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django_tasks import TaskContext, task


@task()
def add(one: int, other: int = 0) -> int:
    return one + other


@task(priority=60, queue_name="slow")
async def spell(word: str) -> list[str]:
    return list(word)


@task(takes_context=True)
def who(context: TaskContext) -> list[Any]:
    return [context.task_result.id, context.attempt, get_user_model().objects.count()]


@task()
def fail(text: str) -> None:
    raise ValueError(text)


@task()
def give_an_object() -> object:
    return object()


@task(backend="stubborn")
def fail_once(file: str) -> str:
    seen = Path(file)
    if not seen.exists():
        seen.touch()
        raise OSError("not yet")
    return "done"


@task(backend="elsewhere")
def other(text: str) -> str:
    return text


def plain(text: str) -> str:
    raise AssertionError("an undecorated function ran")
