"""Make the project's virtual environment and install a requirements file into it, once per change of that file.

    python bin/environment.py requirements-dev.txt     prints the environment's Python; what it does goes to stderr

FLEETSITE_PYTHON names another Python to use as it is; nothing is installed into it. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)


class Problem(Exception):
    """One sentence for the person at the terminal."""


def prepare(requirements: str, say: Callable[[str], None]) -> Path:
    """Answer a Python that has `requirements` installed; raise Problem when there can be none."""
    given = os.environ.get("FLEETSITE_PYTHON")
    if given:
        found = shutil.which(given)
        if found is None or not _runs(Path(found)):
            raise Problem(f"FLEETSITE_PYTHON names {given}, which is no Python {_dotted(OLDEST)} or newer.")
        return Path(found)
    python = ROOT / ".venv" / "bin" / "python"
    if not python.exists():
        say(f"Making .venv with {sys.executable} (Python {_dotted(sys.version_info[:3])})")
        _run([sys.executable, "-m", "venv", str(ROOT / ".venv")], "The virtual environment could not be made")
    if not _runs(python):
        raise Problem(f".venv does not run Python {_dotted(OLDEST)} or newer; remove .venv and try again.")
    wanted, stamp = _digest(requirements), ROOT / ".venv" / f".{requirements}.sha256"
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"Installing {requirements}")
        _install(python, requirements, say)
        stamp.write_text(wanted)
    return python


def _install(python: Path, requirements: str, say: Callable[[str], None]) -> None:
    uv = shutil.which("uv")
    if uv is not None:
        done = subprocess.run(
            [uv, "pip", "install", "-q", "-p", str(python), "-r", requirements], cwd=ROOT, check=False
        )
        if done.returncode == 0:
            return
        say("uv could not install them (it does not read pip's settings); trying pip")
    if subprocess.run([str(python), "-c", "import pip"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        _run([str(python), "-m", "ensurepip"], "pip could not be put into .venv")
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "-r", requirements], f"{requirements} could not be installed")


def _run(argv: list[str], failure: str) -> None:
    done = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Problem(f"{failure}: {lines[-1] if lines else f'exit {done.returncode}'}")


def _runs(python: Path) -> bool:
    probe = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    try:
        return subprocess.run([str(python), "-c", probe], check=False, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def _digest(requirements: str) -> str:
    """Of the file and of the files that it includes."""
    digest = hashlib.sha256()
    for line in (ROOT / requirements).read_text().splitlines():
        included = line.removeprefix("-r ") if line.startswith("-r ") else None
        digest.update((_digest(included) if included else line).encode())
    return digest.hexdigest()


def _dotted(version: tuple[object, ...]) -> str:
    return ".".join(map(str, version))


if __name__ == "__main__":
    try:
        print(prepare(sys.argv[1], lambda text: print(text, file=sys.stderr, flush=True)))
    except Problem as problem:
        sys.exit(str(problem))
