"""The ASGI application."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

from fleetsite.serving import load_or_stop

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetsite.settings")

application = get_asgi_application()
load_or_stop()
