"""Run what was dispatched inside a test: in the calling thread, on the test's own connection and transaction."""

from __future__ import annotations

import secrets

from dispatch import wiring
from dispatch.worker.inline import run_lease

MAX_TURNS = 10_000


def drain(limit: int | None = None) -> int:
    """Run claimable turns, oldest first, until none is left (or `limit` have run); answers how many ran.

    Retries that are due later stay queued. A test that loops for ever is stopped after 10,000 turns.
    """
    config = wiring.config()
    owner, ran = secrets.token_hex(16), 0
    with wiring.standing_in() as authority:
        while ran < (MAX_TURNS if limit is None else limit):
            authority.transitions.release_waiting()  # what follows a commit has not happened inside a transaction
            authority.repair()
            result = authority.step(
                owner=owner, ttl_s=config.claim_ttl_s, settle=[], want=1, serves=wiring.serves(), cursor=""
            )
            if not result.claimed:
                break
            (lease,) = result.claimed
            run_lease(
                lease,
                authority=authority,
                registry=wiring.registry(),
                store=wiring.turn_store(),
                ttl_s=config.claim_ttl_s,
                renew_s=config.renew_interval_s,
                keep=False,
            )
            ran += 1
    return ran
