"""The tools of the help desk. Their first parameter is the turn; the model fills in the others."""

from __future__ import annotations

from dispatch.agents import TurnContext


def keep_note(turn: TurnContext, text: str) -> str:
    """Keep a note for the whole session.

    Args:
        text: what is to be remembered
    """
    notes = turn.state.setdefault("notes", [])
    notes.append(text)
    return f"note {len(notes)} is kept"


def read_notes(turn: TurnContext) -> list[str]:
    """Read all notes of the session."""
    notes: list[str] = turn.state.get("notes", [])
    return notes
