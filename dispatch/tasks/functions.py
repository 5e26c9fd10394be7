"""From a dotted path to the task behind it, and to nothing else."""

from __future__ import annotations

from django.apps import apps
from django.utils.module_loading import import_string
from django_tasks.base import Task
from django_tasks.exceptions import InvalidTaskError


def task_at(path: str, backend: str) -> Task[..., object]:
    """The `@task` of an installed app at this path, made for this backend. Raises InvalidTaskError for all else.

    A path outside of the installed apps is not even imported: importing runs what is written there.
    """
    if apps.get_containing_app_config(path) is None:
        raise InvalidTaskError(f"{path[:200]} lies in no installed app")
    try:
        found = import_string(path)
    except Exception as error:
        raise InvalidTaskError(f"{path[:200]} cannot be imported ({type(error).__name__})") from error
    if not isinstance(found, Task):
        raise InvalidTaskError(f"{path[:200]} is no function decorated with @task")
    return found if found.backend == backend else found.using(backend=backend)
