"""The pins: exact, complete for what the project declares, and within what it declares."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("client", "llm", "mcp", "otel", "tasks")
RUNTIME = ("requirements.txt", *(f"requirements-{extra}.txt" for extra in EXTRAS))


def pins(name: str) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-r ")]


@pytest.mark.parametrize("name", [*RUNTIME, "requirements-dev.txt"])
def test_every_requirement_names_one_version(name: str) -> None:
    loose = [
        str(pin)
        for pin in pins(name)
        if len(pin.specifier) != 1 or any(part.operator != "==" or "*" in part.version for part in pin.specifier)
    ]
    assert not loose, f"{name}: pin {loose} with == to the version that was tried."


@pytest.mark.parametrize("extra", [None, *EXTRAS])
def test_the_pins_lie_within_the_declared_ranges(extra: str | None) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = map(Requirement, project["optional-dependencies"][extra] if extra else project["dependencies"])
    pinned = pins(f"requirements-{extra}.txt" if extra else "requirements.txt")
    for dependency in declared:
        versions = [
            next(iter(pin.specifier)).version
            for pin in pinned
            if canonicalize_name(pin.name) == canonicalize_name(dependency.name)
            and str(pin.marker) == str(dependency.marker)
        ]
        assert len(versions) == 1, f"the pins need one of {dependency.name} with the marker {dependency.marker}."
        assert dependency.specifier.contains(versions[0]), (
            f"the pins have {dependency.name} {versions[0]}, pyproject.toml wants {dependency.specifier}."
        )


def test_development_adds_to_the_runtime_pins_and_repeats_none() -> None:
    runtime = {canonicalize_name(pin.name) for name in RUNTIME for pin in pins(name)}
    twice = [pin.name for pin in pins("requirements-dev.txt") if canonicalize_name(pin.name) in runtime]
    assert not twice, f"requirements-dev.txt repeats {twice}; a file that it includes has them already."
