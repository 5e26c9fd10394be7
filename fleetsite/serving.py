"""What a web process must have before it answers."""

from __future__ import annotations

import sys

# gunicorn's own word for a worker that cannot start: with it the master ends too, instead of starting workers for ever
EXIT_CANNOT_SERVE = 3


def load_or_stop() -> None:
    """Load the agents, and what tells of traces, or end with one sentence. Needs Django to be set up."""
    from dispatch import wiring
    from dispatch.agents.registry import BadAgent
    from dispatch.errors import TracingUnavailable
    from dispatch.network import silence

    try:
        wiring.registry()
        wiring.tracer()
    except (BadAgent, TracingUnavailable) as error:
        print(error.message, file=sys.stderr)
        raise SystemExit(EXIT_CANNOT_SERVE) from None
    silence.answers_callers()
