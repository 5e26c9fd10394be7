"""Names kept from the seeds that this project grew from. They say nothing here, but others know them by these words."""

from __future__ import annotations

from typing import Final

# The state store's file on SQLite. It was once the store of a terminal interface; tools and backups look for this name.
STATE_FILE: Final = "agent_terminal_ui.db"

# The environment variable, and its value, that a worker forces on itself and on what it starts, so that a library which
# can also run as a daemon of its own acts as a client only.
DAEMON_ROLE_VARIABLE: Final = "KG_DAEMON_ROLE"
DAEMON_ROLE_CLIENT: Final = "client"
