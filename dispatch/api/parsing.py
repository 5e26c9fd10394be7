"""Read a JSON body strictly: UTF-8, one object, bounded size and depth, no NaN, no key twice."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from rest_framework.exceptions import APIException
from rest_framework.parsers import BaseParser

from dispatch.errors import Invalid
from dispatch.inputs import refusal

MAX_BYTES = 1024 * 1024
MAX_LARGE_BYTES = 8 * 1024 * 1024


class BodyTooLarge(APIException):
    """The body is larger than this address takes."""

    status_code = 413
    default_code = "too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit} bytes.", code="too_large")


class StrictJSONParser(BaseParser):
    """Parse `application/json` into a dict.

    At most 1 MiB; 8 MiB for the actions that the view names in `large_actions`. What a text may hold and how deep a
    value may go is checked where the fields are read, by `dispatch.inputs`.
    """

    media_type = "application/json"

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        large: Collection[str] = getattr((parser_context or {}).get("view"), "large_actions", frozenset())
        limit = MAX_LARGE_BYTES if large else MAX_BYTES
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise BodyTooLarge(limit)
        body = loads(raw)
        if len(raw) > MAX_BYTES and body.get("action") not in large:
            raise BodyTooLarge(MAX_BYTES)
        return body


def loads(raw: bytes) -> dict[str, Any]:
    """Raise Invalid for anything that is not exactly one JSON object in UTF-8."""
    try:
        body = json.loads(raw.decode(), parse_constant=_refuse_constant, object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise Invalid("The body is not UTF-8.") from None
    except RecursionError:
        raise Invalid("The body is nested too deep.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise Invalid(f"The body is not valid JSON, {where}." if raw.strip() else "The body is empty.") from None
    except ValueError:  # a whole number of thousands of digits
        raise Invalid("The body has a number that is too long.") from None
    if not isinstance(body, dict):
        raise Invalid("The body must be a JSON object.")
    return body


def _refuse_constant(name: str) -> NoReturn:
    raise Invalid(f"The body has {name}, which is not JSON.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise refusal({key[:120]: "is given twice"})
            seen.add(key)
    return result
