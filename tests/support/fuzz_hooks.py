"""What schemathesis is told of the API that a description in OpenAPI cannot say. Named by SCHEMATHESIS_HOOKS."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis import Case, HookContext, Response
from schemathesis.core.failures import Failure


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    """False for what is no failure."""
    if response.status_code in (413, 414):  # too large, said before it is read; 414 by gunicorn itself
        return False
    if failure.title == "Schema-valid request rejected" and response.status_code == 400:
        # rules that no schema of a field has: several fields together, a calendar, a cursor of that very list. They
        # must say which field it is.
        told = response.json()
        return not (told["code"] == "invalid" and told["fields"] and all(told["fields"].values()))
    # dispatch_many answers for each element by itself, so a wrong element is no wrong request
    return not (
        failure.title == "Schema-violating request accepted"
        and isinstance(case.body, dict)
        and case.body.get("action") == "dispatch_many"
    )
