"""How the configuration reaches Django: the stores, the log lines, and a start that is refused."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dispatch.network import BoundedConnection
from fleetsite.config import AgentConfig
from fleetsite.databases import postgres, state_store
from fleetsite.logconf import LineFormatter

ROOT = Path(__file__).resolve().parents[2]


def start(*argv: str, data: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(data), "AGENT_DATA_DIR": str(data / "data"), **more}
    return subprocess.run(
        [sys.executable, *argv], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("manage.py", "check"),
        ("-c", "import fleetsite.wsgi"),
        ("-c", "import fleetsite.asgi"),
        ("-m", "gunicorn", "-c", "fleetsite/gunicorn_conf.py", "--bind", "127.0.0.1:0", "fleetsite.wsgi:application"),
    ],
    ids=["manage.py", "wsgi", "asgi", "gunicorn"],
)
def test_a_wrong_setting_ends_every_process_with_one_sentence_and_exit_2(tmp_path: Path, argv: tuple[str, ...]) -> None:
    done = start(*argv, data=tmp_path, AGENT_TYPO="1")
    assert done.returncode == 2
    assert done.stderr.startswith("AGENT_TYPO is not a setting")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_the_metrics_directory_is_named_before_prometheus_is_imported(tmp_path: Path) -> None:
    code = (
        "import os, sys, fleetsite.gunicorn_conf as conf; assert 'prometheus_client' not in sys.modules;"
        "conf.on_starting(None); assert os.listdir(os.environ['PROMETHEUS_MULTIPROC_DIR']) == ['.lock'];"
        "print(conf.METRICS)"
    )
    killed = start("-c", code, data=tmp_path).stdout.strip()
    assert Path(killed).is_relative_to(tmp_path / "data" / "metrics")
    following = start("-c", code + ";conf.on_exit(None)", data=tmp_path)
    assert following.returncode == 0, following.stderr
    assert list((tmp_path / "data" / "metrics").iterdir()) == []  # what a killed master left is gone, too


def test_sqlite_commits_are_immediate_and_durable(tmp_path: Path) -> None:
    config = AgentConfig.load({"AGENT_DATA_DIR": str(tmp_path)})
    database = state_store(config)
    assert database["NAME"] == f"{config.state_path.as_uri()}?mode=rw"
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "synchronous=FULL" in database["OPTIONS"]["init_command"]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (
            "postgresql://fl%40et:p%2Fw%3Aord@db.example:5433/fl%20eet?sslmode=require",
            {"USER": "fl@et", "PASSWORD": "p/w:ord", "HOST": "db.example", "PORT": "5433", "NAME": "fl eet"},
        ),
        (
            "postgresql:///fleet?host=/run/postgresql",
            {"HOST": "/run/postgresql", "NAME": "fleet", "USER": "", "PORT": ""},
        ),
        ("postgres://a@%2Frun%2Fpostgresql/fleet", {"HOST": "/run/postgresql", "NAME": "fleet", "USER": "a"}),
        ("postgresql://a@[::1]:5432/fleet", {"HOST": "::1", "PORT": "5432"}),
        ("postgresql://a@one:1,two:2/fleet?target_session_attrs=read-write", {"HOST": "one,two", "PORT": "1,2"}),
    ],
)
def test_a_postgres_address_becomes_a_database_entry(uri: str, expected: dict[str, Any]) -> None:
    database = postgres(uri, pool_size=3)
    assert {key: database[key] for key in expected} == expected


def test_what_else_the_address_says_goes_to_libpq() -> None:
    options = postgres("postgresql://a@b/c?sslmode=verify-full&connect_timeout=3", pool_size=3)["OPTIONS"]
    assert (options["sslmode"], options["connect_timeout"]) == ("verify-full", "3")
    waits = {"timeout": 10, "reconnect_timeout": 10}
    assert options["pool"] == {"min_size": 1, "max_size": 3, **waits, "connection_class": BoundedConnection}


def test_a_log_record_is_one_line_with_its_ids_behind_the_message() -> None:
    record = logging.makeLogRecord(
        {"name": "dispatch.worker", "levelname": "INFO", "msg": "turn\nsettled", "created": 0.5}
        | {"job_id": "orch-1", "attempt": 2, "reason": "a b\u2028", "request": object()}
    )
    line = LineFormatter().format(record)
    assert line == (
        r"1970-01-01T00:00:00.500Z INFO dispatch.worker turn\nsettled job_id=orch-1 attempt=2 " + r'reason="a b\u2028"'
    )


def test_a_traceback_stays_on_its_records_line() -> None:
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    assert "\n" not in LineFormatter().format(record)


@pytest.mark.parametrize(("https", "secure"), [("1", True), ("0", False)])
def test_behind_tls_cookies_are_for_tls_alone_and_forms_come_from_its_pages(
    tmp_path: Path, https: str, secure: bool
) -> None:
    code = """
import django; django.setup()
from django.test import Client
client = Client(enforce_csrf_checks=True, headers={"Host": "localhost", "X-Forwarded-Proto": "https"})
page = client.get("/admin/login/")
token = page.cookies["csrftoken"]
sent = client.post("/admin/login/", {"csrfmiddlewaretoken": token.value, "username": "a", "password": "b"},
    headers={"Origin": "https://localhost", "Referer": "https://localhost/admin/login/"})
print(bool(token["secure"]), "Strict-Transport-Security" in page.headers, sent.status_code != 403)
"""
    migrated = start("manage.py", "migrate", "-v0", data=tmp_path)
    assert migrated.returncode == 0, migrated.stderr
    done = start("-c", code, data=tmp_path, DJANGO_HTTPS=https, DJANGO_SETTINGS_MODULE="fleetsite.settings")
    assert done.stdout.split() == [str(secure)] * 3, done.stderr
    checked = start("manage.py", "check", "--deploy", "--fail-level", "WARNING", data=tmp_path, DJANGO_HTTPS=https)
    assert checked.returncode == 0, checked.stderr
