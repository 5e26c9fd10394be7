"""The only writer of a WorkItem's status and lease, and of a session's places, head, turn number and state."""

from dispatch.authority.core import WorkAuthority

__all__ = ["WorkAuthority"]
