"""What a failed run of a model means for its turn: asked again later, or ended at once. No key and no address in it."""

from __future__ import annotations

import re
from typing import NoReturn

from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelTimeoutError,
    OutputTokenLimitExceeded,
    UserError,
)

from dispatch.agents.clean import describe
from dispatch.agents.control import Discard, Retry

MOST_RETRY_AFTER_S = 600.0
LABEL = re.compile(r"[A-Za-z0-9_.-]{1,80}")  # an error's code is quoted only when it is one word
PASSING = frozenset({408, 409, 425, 429})


class ModelFailed(Exception):
    """The model gave no answer."""


def raise_for(error: AgentRunError | UserError) -> NoReturn:
    """Raise Discard, Retry or ModelFailed for what the library raised. Its text is not told: it may quote anything."""
    match error:
        case ModelHTTPError() | ModelAPIError() if _is_final(error):
            raise Discard(_said(error)) from None
        case ModelAPIError():
            after = None if error.retry_after is None else min(max(error.retry_after, 0.0), MOST_RETRY_AFTER_S)
            raise Retry(after) from ModelFailed(_said(error))
        case ContentFilterError():
            raise Discard("the provider's content filter kept the answer back") from None
        case OutputTokenLimitExceeded():
            raise Discard("the model had no tokens left to answer with; settings.max_tokens is too low") from None
    # a model that does not do as told may do so next time
    raise ModelFailed(describe(error, 500)) from None


def _is_final(error: ModelAPIError) -> bool:
    if isinstance(error, ModelRequestRejectedError | ModelQuotaExceededError):
        return True
    return isinstance(error, ModelHTTPError) and error.status_code < 500 and error.status_code not in PASSING


def _said(error: ModelAPIError) -> str:
    match error:
        case ModelTimeoutError() | ModelRequestTimeout():
            return "the provider gave no answer in time"
        case ModelConnectionError(phase=phase):
            return "the provider cannot be reached" if phase in ("pool", "connect") else "the answer broke off"
        case ModelHTTPError():
            codes = (error.provider_error_code, error.provider_error_type)
            label = next((code for code in codes if code and LABEL.fullmatch(code)), None)
            hint = "; look at api_key_env" if isinstance(error, ModelAuthenticationError) else ""
            return f"the provider answered {error.status_code}{f' ({label})' if label else ''}{hint}"
    return f"the provider failed ({type(error).__name__})"
