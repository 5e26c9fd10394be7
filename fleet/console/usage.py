"""What jobs and sessions spent on models, in one line."""

from __future__ import annotations

from typing import Any

from fleet.console.labels import counted


def usage_line(usage: dict[str, Any] | None) -> str:
    """Empty when no model was asked; what is not known is said, never shown as nothing."""
    if usage is None:
        return ""
    parts = [
        counted(usage["requests"], "request"),
        f"{usage['input_tokens']:,} tokens in",
        f"{usage['output_tokens']:,} out",
        counted(usage["tool_calls"], "tool call"),
    ]
    unpriced = usage["unpriced_requests"]
    if usage["cost"] is None:
        parts.append("cost not known")
    else:
        beside = f" beside {counted(unpriced, 'request')} of unknown cost" if unpriced else ""
        parts.append(f"cost {usage['cost']}{beside}")
    return ", ".join(parts)
