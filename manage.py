#!/usr/bin/env python
"""Run Django's management commands from a checkout."""

from __future__ import annotations

from fleetsite.__main__ import main

if __name__ == "__main__":
    main()
