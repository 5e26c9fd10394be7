"""Manners that a reader can count on in every file of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sessions_app", "dispatch", "fleet", "fleetsite")
MOST_LINES = 400
# Add one only with its reason.
MAY_BE_LONGER = {"dispatch/authority/transitions.py": "every transition of the state machine, side by side"}
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b|NotImplemented" r"Error")
TEMPLATE_TAG = re.compile(r"\{%-?\s*(\w+)(.*?)%\}", re.DOTALL)


def ours(*suffixes: str) -> list[Path]:
    """Files of ours by suffix, generated migrations apart."""
    places = [ROOT / name for name in (*PACKAGES, "templates", "tests", "bin")]
    found = [
        path for place in places for path in sorted(place.rglob("*")) if path.suffix in suffixes and path.is_file()
    ]
    return [path for path in found if not {"migrations", "vendor", "__pycache__"} & set(path.parts)]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", ours(".py", ".html", ".css", ".js", ".sql"), ids=named)
def test_a_file_fits_on_a_few_screens(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MOST_LINES or named(path) in MAY_BE_LONGER, (
        f"{named(path)} has {lines} lines, more than {MOST_LINES}; a module answers one question, so split it."
    )


@pytest.mark.parametrize("path", ours(".py", ".html", ".sql", ".js"), ids=named)
def test_nothing_is_left_to_do(path: Path) -> None:
    found = [number for number, line in enumerate(path.read_text().splitlines(), 1) if UNFINISHED.search(line)]
    assert not found, f"{named(path)}, lines {found}: finish it or take it out; what is planned belongs in an issue."


@pytest.mark.parametrize("path", ours(".html"), ids=named)
def test_a_template_only_shows(path: Path) -> None:
    """Comparing and computing is the page's context class's work."""
    found = [
        f"{{% {name}{rest}%}}"
        for name, rest in TEMPLATE_TAG.findall(path.read_text())
        if name in {"if", "elif"} and re.search(r"[<>]=?|==|!=|\b(?:and|or)\b.*\b(?:and|or)\b", rest)
    ]
    assert not found, f"{named(path)} decides something itself: {found}; give its context a field that says it."
