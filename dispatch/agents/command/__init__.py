"""Agents that are commands: any program, told its task on its command line or its stdin."""
