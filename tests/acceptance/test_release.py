"""What bin/release builds: the same bytes each time, and a wheel that runs in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.support.parts import missing
from tests.support.processes import Proc, free_port

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dispatch", "fleet", "fleetsite", "sessions_app")


def release(place: Path) -> Path:
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "FLEETSITE_PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "bin" / "release", place], env={**env, "HOME": str(place)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return place


def only(place: Path, pattern: str) -> Path:
    (found,) = place.glob(pattern)
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of a new environment that holds the wheel and what requirements.txt pins, nothing else."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run(
        [*pip, "-r", str(ROOT / "requirements.txt"), str(only(built, "*.whl"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return place / "bin"


def run(installed: Path, home: Path, *argv: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a console script with an environment of its own, in an empty directory."""
    command, *arguments = map(str, argv)
    return subprocess.run(
        [installed / command, *arguments],
        cwd=home,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_second_build_of_the_same_tree_has_the_same_bytes(built: Path, tmp_path: Path) -> None:
    sums = (built / "SHA256SUMS").read_text()
    assert (release(tmp_path) / "SHA256SUMS").read_text() == sums
    told = {name: digest for digest, name in map(str.split, sums.splitlines())}
    files = [path for path in built.iterdir() if path.name.startswith("fleetsite-")]
    assert told == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert len(files) == 3


def test_the_wheel_holds_every_file_of_the_packages_and_the_templates_and_no_test(built: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    wanted = {name for name in tracked if name.startswith(tuple(f"{package}/" for package in PACKAGES))}
    wanted |= {f"fleetsite/{name}" for name in tracked if name.startswith("templates/")}
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == wanted
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "manage.py", "requirements.txt"} <= held
    assert not {name for name in held if name.startswith(("tests/", "benchmarks/"))}


def test_the_bill_of_materials_is_valid_and_names_each_pin(built: Path) -> None:
    text = only(built, "*.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    lines = [line.split("#")[0].split(";")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    pins = {tuple(line.split("[")[0].split("==")[0:1] + line.split("==")[1:]) for line in lines if line}
    assert {(part["name"], part["version"]) for part in bom["components"]} == pins
    assert bom["metadata"]["component"]["name"] == "fleetsite"


def test_up_once_runs_a_turn_and_leaves_nothing(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "fleetsite", "up", "--once", "--port", free_port())
    assert done.returncode == 0, done.stdout + done.stderr
    job = json.loads(done.stdout.splitlines()[-1])
    assert (job["status"], job["result"]["echo"]) == ("succeeded", "Say hello to the fleet")
    assert (tmp_path / ".local" / "share" / "fleetsite" / "quickstart.key").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".local"], "it writes to its data directory alone"


def test_the_pages_the_styles_and_the_migrations_are_those_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    for command in (["check", "--fail-level", "WARNING"], ["makemigrations", "--check"], ["migrate", "-v0"]):
        done = run(installed, tmp_path, "fleetsite", *command)
        assert done.returncode == 0, done.stdout + done.stderr
    page = """
from django.contrib.auth import get_user_model
from django.test import Client
get_user_model().objects.create_superuser("a", password="a")
client = Client(); client.force_login(get_user_model().objects.get())
for path in ("/admin/", "/admin/queue/", "/static/fleet/console.css"):
    print(client.get(path, headers={"host": "localhost"}).status_code)
"""
    done = run(installed, tmp_path, "fleetsite", "shell", "--no-imports", "-c", page)
    assert done.stdout.split() == ["200"] * 3, done.stdout + done.stderr


def test_the_caller_s_own_agents_are_found_beside_it_and_a_wrong_setting_is_exit_2(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "from dispatch.agents import agent\n\n@agent('mine')\ndef mine(turn):\n    return {'own': turn.task}\n"
    )
    port = free_port()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AGENT_MODULES": "own"}
    with Proc(
        "up", [installed / "fleetsite", "up", "--port", str(port)], log=tmp_path / "up.log", env=env, cwd=tmp_path
    ) as up:
        up.wait_for_text("Ctrl-C stops everything.", 90)
        told = run(installed, tmp_path, "fleetsite", "jobs", "list", "--json")
        assert told.returncode == 0, told.stderr
        up.signal(signal.SIGTERM)
        assert up.wait(20) == 0
    log = tmp_path / ".local" / "share" / "fleetsite" / "logs" / "worker.log"
    assert 'agents="echo,mine"' in log.read_text()
    refused = run(installed, tmp_path, "agent-dispatch-worker", AGENT_MODULES="nobody")
    assert (refused.returncode, "AGENT_MODULES" in refused.stderr) == (2, True), refused.stderr


def test_the_units_of_systemd_are_understood_and_start_what_is_installed(installed: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        missing("systemd-analyze is not here, which reads the units")
    units = []
    for unit in (ROOT / "deploy" / "systemd").iterdir():
        text = unit.read_text()
        assert "/opt/fleetsite/bin/" in text
        units.append(tmp_path / unit.name)
        units[-1].write_text(text.replace("/opt/fleetsite/bin", str(installed)))
    assert len(units) == 2
    done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
