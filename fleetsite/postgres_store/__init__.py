"""Django's Postgres backend, for processes that must answer whatever the server does."""
