"""The documentation builds as a site whose links lead somewhere and which fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import reference

ROOT = Path(__file__).resolve().parents[2]
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(made)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr  # strict: a page without a place, a link or an anchor to nowhere
    return made


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    fetched = {
        str(page.relative_to(site)): found
        for page in pages
        if (found := FETCHED.findall(page.read_text(encoding="utf-8")))
    }
    assert not fetched
    styles = "".join(sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css"))
    assert not re.findall(r"url\([\"']?(?:https?:)?//[^)]+", styles)


def test_the_example_s_secrets_and_code_are_not_pages(site: Path) -> None:
    published = {path.suffix for path in (site / "examples").rglob("*") if path.is_file()}
    assert published == {".html"}


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_the_reference_is_what_the_code_says(name: str) -> None:
    written = (reference.DOCS / name).read_text()
    assert written == reference.render(reference.PAGES[name]), "make it anew: python -m tests.support.reference"


def test_every_module_that_makes_series_is_in_the_reference() -> None:
    makers = {
        str(source.relative_to(ROOT))
        for room in ("dispatch", "fleet", "fleetsite", "sessions_app")
        for source in (ROOT / room).rglob("*.py")
        if any(reference.series_of(source))
    }
    assert makers == set(reference.SERIES)


def test_every_command_is_in_the_reference() -> None:
    for app, named in (("dispatch", reference.DISPATCH_COMMANDS), ("fleet", reference.FLEET_COMMANDS)):
        files = (ROOT / app / "management" / "commands").glob("[a-z]*.py")
        assert {file.stem for file in files} == set(named), app


def test_every_alert_has_its_page_and_names_it() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus-rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    index = (ROOT / "docs" / "handbook" / "index.md").read_text()
    for alert in alerts:
        name = alert["alert"]
        assert alert["annotations"]["runbook"] == f"docs/handbook/{name}.md"
        page = (ROOT / alert["annotations"]["runbook"]).read_text()
        assert page.startswith(f"# {name}\n")
        assert f"[{name}]({name}.md)" in index
    pages = {page.stem for page in (ROOT / "docs" / "handbook").glob("Fleetsite*.md")}
    assert pages == {alert["alert"] for alert in alerts}
