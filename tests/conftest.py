"""Settings of the test run. Set here and not in pytest's configuration: pytest-django would load Django's settings from
there before this file had put the environment in order.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import django
import pytest
from hypothesis import HealthCheck, settings

# STATE_DB_URI stays: it says which store the tests run on, and it needs a secret key beside it.
KEPT = {"STATE_DB_URI", "DJANGO_SECRET_KEY"}
OURS = ("AGENT_", "AGENTS_", "STATE_DB_", "TASK_QUEUE_", "KAFKA_", "GRAPH_", "ENGINE_", "DJANGO_")

for _name in [name for name in os.environ if name.startswith(OURS) and name not in KEPT]:
    del os.environ[_name]

_DATA = Path(tempfile.mkdtemp(prefix="fleetsite-tests-"))
os.environ["AGENT_DATA_DIR"] = str(_DATA)
os.environ["DJANGO_SETTINGS_MODULE"] = "fleetsite.settings"


# how long an example takes says nothing on a machine that others use too
settings.register_profile("fleetsite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fleetsite")


def pytest_configure(config: pytest.Config) -> None:
    """Start Django, unless `-p no:django` asked for the pure tests alone."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # so a shell starts what it runs in the background; the processes of the tests would ignore Ctrl-C too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.pluginmanager.has_plugin("django"):
        django.setup()


def pytest_unconfigure() -> None:
    shutil.rmtree(_DATA, ignore_errors=True)


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory for one test; AGENT_DATA_DIR names it, for processes that the test starts."""
    place = tmp_path / "data"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("AGENT_DATA_DIR", str(place))
    return place
