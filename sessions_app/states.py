"""Session statuses and the wish of whoever steers the session."""

ACTIVE = "active"
IDLE = "idle"
FAILED = "failed"
NEEDS_INPUT = "needs_input"
PAUSE_REQUESTED = "pause_requested"
PAUSED = "paused"
KILL_REQUESTED = "kill_requested"
CANCELLED = "cancelled"

STATUSES = (ACTIVE, IDLE, FAILED, NEEDS_INPUT, PAUSE_REQUESTED, PAUSED, KILL_REQUESTED, CANCELLED)

RUN = "run"
PAUSE = "pause"
KILL = "kill"
DESIRES = (RUN, PAUSE, KILL)
