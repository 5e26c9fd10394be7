"""The WSGI application."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

from fleetsite.serving import load_or_stop

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetsite.settings")

application = get_wsgi_application()
load_or_stop()
