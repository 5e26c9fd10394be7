"""Agents that are models: instructions, tools and a session's conversation, through pydantic-ai, which is an extra.

Nothing here imports it before an agent of the kind is prepared or run.
"""
