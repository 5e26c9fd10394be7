"""Django's SQLite backend, for a state file that is opened and never made by looking at it."""
