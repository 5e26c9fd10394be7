"""Logging: one line per record to stderr, the ids of `extra` behind the message as key=value."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_PLAIN_TYPES = (str, int, float)
_PLAIN = re.compile(r"[A-Za-z0-9._:/@+-]+")


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO dispatch.worker settled job_id=orch-1`: one line, whatever the record holds."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def formatMessage(self, record: logging.LogRecord) -> str:
        # only plain values: Django puts the request object here, whose text holds the query string
        extra = [
            f" {key}={_show(value)}"
            for key, value in record.__dict__.items()
            if key not in _STANDARD and isinstance(value, _PLAIN_TYPES)
        ]
        return f"{self.formatTime(record)} {record.levelname} {record.name} {record.message}{''.join(extra)}"

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        # a worker writes a line for each turn: what needs no mending is not built anew
        return text if text.isprintable() else _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def _show(value: str | float) -> str:
    text = str(value)
    return text if text.isalnum() or _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "fleetsite.logconf.LineFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    # Django gives these handlers of their own: each record would be printed twice, or mailed
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.server": {"handlers": [], "level": "INFO", "propagate": True},
        # a line with the address for each request to a model
        "httpx2": {"level": "WARNING"},
    },
}
