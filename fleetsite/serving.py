"""What a web process must have before it answers."""

from __future__ import annotations

import sys

# gunicorn's own word for a worker that cannot start: with it the master ends too, instead of starting workers for ever
EXIT_CANNOT_SERVE = 3


def load_agents_or_stop() -> None:
    """Load the agents of AGENT_MODULES and AGENTS_FILE, or end with one sentence. Needs Django to be set up."""
    from dispatch import wiring
    from dispatch.agents.registry import BadAgent

    try:
        wiring.registry()
    except BadAgent as error:
        print(error.message, file=sys.stderr)
        raise SystemExit(EXIT_CANNOT_SERVE) from None
