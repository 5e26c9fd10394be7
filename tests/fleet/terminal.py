"""Commands as an operator types them."""

from __future__ import annotations

import io
import json
from typing import Any

from django.core.management import call_command


def manage(*arguments: str) -> tuple[int, str, str]:
    """(exit code, what it printed, what it complained of)."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def answered(*arguments: str) -> tuple[int, Any]:
    """(exit code, body) of a call with --json."""
    code, out, err = manage(*arguments, "--json")
    assert err == ""
    return code, json.loads(out)
