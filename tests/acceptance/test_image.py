"""The image of deploy/Dockerfile, as far as it can be had without a container: its files, its commands, its health."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.support.parts import missing
from tests.support.processes import Proc, free_port, until

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@pytest.fixture(scope="module")
def steps() -> list[Any]:
    """The instructions, as Docker's own parser reads them."""
    try:
        import dockerfile
    except ImportError:
        missing("the package dockerfile is not here, which reads a Dockerfile")
    return list(dockerfile.parse_file(str(DOCKERFILE)))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> Path:
    """The directory that the image's processes work in: what may be copied, and what is run on it."""
    place = tmp_path_factory.mktemp("image") / "app"
    place.mkdir()
    for line in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines():
        whole = ROOT / line.removeprefix("!")
        if line.startswith("!") and whole.is_dir():
            shutil.copytree(whole, place / whole.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif line.startswith("!"):
            shutil.copy(whole, place)
    (build,) = [step.value[0] for step in steps if step.cmd == "RUN" and "collectstatic" in step.value[0]]
    done = subprocess.run(["sh", "-ec", build], cwd=place, env=variables(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def variables(**more: str) -> dict[str, str]:
    return {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/nonexistent", **more}


def command(steps: list[Any], name: str, port: int) -> list[str]:
    """The last one of that name, with another port; a health check is what comes after its own CMD."""
    words = [step for step in steps if step.cmd == name][-1].value
    return [word.replace("8000", str(port)) for word in words if word != "CMD"]


def test_its_processes_serve_what_was_collected_and_the_health_check_tells_life_from_death(
    image: Path, steps: list[Any], tmp_path: Path
) -> None:
    port = free_port()
    env = variables(AGENT_DATA_DIR=str(tmp_path / "data"), DJANGO_ALLOWED_HOSTS="fleet.example.com")
    check = command(steps, "HEALTHCHECK", port)

    def healthy() -> bool:
        return subprocess.run(check, env=env, stderr=subprocess.DEVNULL, check=False).returncode == 0

    assert not healthy()
    migrated = subprocess.run(["python", "manage.py", "migrate", "-v0"], cwd=image, env=env, check=False)
    assert migrated.returncode == 0
    with Proc("web", command(steps, "CMD", port), log=tmp_path / "web.log", env=env, cwd=image) as web:
        until(lambda: healthy() or not web.alive, 40, "the health check passes", every=0.2)
        style = next((image / "staticfiles").rglob("*.css"))
        assert served(port, f"/static/{style.relative_to(image / 'staticfiles')}") == style.read_bytes()
    assert not healthy()
    assert not list(image.rglob("secret_key")), "the image holds no secret"


def served(port: int, path: str) -> bytes:
    request = Request(f"http://127.0.0.1:{port}{path}", headers={"Host": "fleet.example.com"})
    with urlopen(request, timeout=10) as answer:
        return bytes(answer.read())
