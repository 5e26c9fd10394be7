"""A session's conversation, kept in its state under one key, so that it commits with the turn and is fenced like it.

{"conversation": [[message, …], …]}     a list of messages for each turn, oldest first
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse, UserPromptPart

from dispatch.agents.clean import clean_json
from dispatch.agents.control import Discard
from dispatch.json_text import json_size

KEY = "conversation"
# what the next turn says anew, or nobody reads again
_LEFT_OUT = ("instructions", "usage", "run_id", "conversation_id", "provider_details", "provider_url", "state")


def read(state: dict[str, Any]) -> list[ModelMessage]:
    """All messages of the session. Raise Discard when its state holds something else under the key."""
    turns = state.get(KEY, [])
    if not isinstance(turns, list) or not all(isinstance(turn, list) for turn in turns):
        raise _not_a_conversation()
    try:
        return ModelMessagesTypeAdapter.validate_python([message for turn in turns for message in turn])
    except ValidationError:
        raise _not_a_conversation() from None


def _not_a_conversation() -> Discard:
    return Discard(f"the session's state has something under {KEY} that is no conversation of a model's turns")


def write(state: dict[str, Any], messages: Sequence[ModelMessage], *, most_turns: int, most_bytes: int) -> None:
    """Add a turn's messages. Whole turns go from the oldest until the rest is within the bounds.

    A turn that is too large alone is kept without its tool calls, as what was said to it and what it answered; if that
    is too large as well, it is not kept.
    """
    kept = [*state.get(KEY, []), _plain(messages)]
    if json_size(kept[-1:]) > most_bytes:
        kept[-1] = _plain(_ends(messages))
    kept = kept[max(0, len(kept) - most_turns) :]
    sizes = [json_size([turn]) for turn in kept]
    while kept and sum(sizes) > most_bytes:
        del kept[0], sizes[0]
    state[KEY] = kept


def _plain(messages: Sequence[ModelMessage]) -> list[Any]:
    """Cleaned, so that what is stored is what was measured."""
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json", exclude_none=True)
    slim = [{name: value for name, value in message.items() if name not in _LEFT_OUT} for message in dumped]
    cleaned: list[Any] = clean_json(slim, limit=None)[0]
    return cleaned


def _ends(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    prompts = [part for part in messages[0].parts if isinstance(part, UserPromptPart)]
    text = messages[-1].text if isinstance(messages[-1], ModelResponse) else None
    said = ModelMessagesTypeAdapter.validate_python(
        [{"kind": "response", "parts": [{"part_kind": "text", "content": text or ""}]}]
    )
    return [ModelRequest(parts=prompts), *said]
