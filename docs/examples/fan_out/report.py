"""A report that is written in parts: one child job for each text, all at once, and one job that waits for them."""

from __future__ import annotations

from typing import Any

from dispatch.agents import Discard, TurnContext, agent


@agent("count-words")
def count_words(turn: TurnContext) -> dict[str, int]:
    """Read one text. As slow as a model may be; so it runs beside the others."""
    words = turn.payload["text"].split()
    if not words:
        raise Discard("the text is empty")
    return {"words": len(words), "longest": max(map(len, words))}


@agent("report")
def report(turn: TurnContext) -> dict[str, Any]:
    """Hand each text to a child, wait without holding a slot, and put together what came back."""
    texts: dict[str, str] = turn.payload["texts"]
    for name, text in texts.items():
        turn.dispatch(name, key=name, agent_name="count-words", payload={"text": text})
    ended = dict(
        zip(texts, turn.wait(), strict=True)
    )  # suspended until the last has ended, then run again from the top
    read = {name: child["result"] for name, child in ended.items() if child["status"] == "succeeded"}
    return {
        "words": sum(part["words"] for part in read.values()),
        "longest": max((part["longest"] for part in read.values()), default=0),
        "unread": {name: child["error"]["message"] for name, child in ended.items() if name not in read},
    }
