"""The pins: exact, complete for what the project declares, and within what it declares."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def pins(name: str) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-r ")]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_requirement_names_one_version(name: str) -> None:
    loose = [
        str(pin)
        for pin in pins(name)
        if len(pin.specifier) != 1 or any(part.operator != "==" or "*" in part.version for part in pin.specifier)
    ]
    assert not loose, f"{name}: pin {loose} with == to the version that was tried."


def test_the_pins_lie_within_the_declared_ranges() -> None:
    declared = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    pinned = pins("requirements.txt")
    for dependency in declared:
        versions = [
            next(iter(pin.specifier)).version
            for pin in pinned
            if canonicalize_name(pin.name) == canonicalize_name(dependency.name)
            and str(pin.marker) == str(dependency.marker)
        ]
        assert len(versions) == 1, (
            f"requirements.txt needs one pin of {dependency.name} with the marker {dependency.marker}."
        )
        assert dependency.specifier.contains(versions[0]), (
            f"requirements.txt pins {dependency.name} {versions[0]}, pyproject.toml wants {dependency.specifier}."
        )


def test_development_adds_to_the_runtime_pins_and_repeats_none() -> None:
    runtime = {canonicalize_name(pin.name) for pin in pins("requirements.txt")}
    twice = [pin.name for pin in pins("requirements-dev.txt") if canonicalize_name(pin.name) in runtime]
    assert not twice, f"requirements-dev.txt repeats {twice}; requirements.txt has them already."
