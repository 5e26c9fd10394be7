"""What schemathesis is told of the API that a description in OpenAPI cannot say. Named by SCHEMATHESIS_HOOKS."""

from __future__ import annotations

import re
from typing import Any

import schemathesis
from schemathesis import Case, HookContext, Response
from schemathesis.core.failures import Failure

# Rules that no schema of a single field has: several fields together, a calendar, a list's own cursor.
BEYOND_A_SCHEMA = re.compile(
    r"must not be over max|exactly one of them|or both|and not both"
    r"|must be the next_cursor of an earlier page"
    r"|must have 5 fields|must be an IANA time zone|is in the past"
    r"|is missing: which|must not be given: there is one fleet|must name a status, domain or agent_name"
    r"|must be one of orchestrator_task, goal_loop|must be an agent of this configuration"
    r"|is a field of kind goal_loop only|a NUL or a lone surrogate|printable characters|a non-empty text"
    r"|goes with rate_per_s|must be an object with one of command"
    r"|must be a whole number"  # 1.0 is one to JSON Schema
)


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    """False for what is no failure."""
    if response.status_code in (413, 414):  # too large, said before it is read; 414 by gunicorn itself
        return False
    if failure.title == "Schema-valid request rejected" and response.status_code == 400:
        told = response.json()["fields"]
        return not all(BEYOND_A_SCHEMA.search(text) for text in told.values())
    # dispatch_many answers for each element by itself, so a wrong element is no wrong request
    return not (
        failure.title == "Schema-violating request accepted"
        and isinstance(case.body, dict)
        and case.body.get("action") == "dispatch_many"
    )
