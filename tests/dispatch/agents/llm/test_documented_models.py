"""What the page of models shows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dispatch.agents.llm import spec
from dispatch.agents.registry import load_agents
from dispatch.states import ErrorCode
from tests.dispatch.agents.llm.models import ground

ROOT = Path(__file__).resolve().parents[4]
DOCS = ROOT / "docs"
PAGE = (DOCS / "models.md").read_text()


@pytest.mark.parametrize("key", spec.KEYS)
def test_every_key_has_its_row(key: str) -> None:
    assert f"| `{key}` |" in PAGE, f"docs/models.md: the table of keys lacks {key}"


@pytest.mark.parametrize("name", spec.SETTINGS)
def test_every_setting_is_named(name: str) -> None:
    assert f"`{name}`" in PAGE, f"docs/models.md: settings lacks {name}"


def test_the_page_tells_the_bounds_that_hold() -> None:
    for key, bound in (
        ("history_turns", spec.HISTORY_TURNS),
        ("history_bytes", spec.HISTORY_BYTES),
        ("retries", spec.RETRIES),
    ):
        assert f"| `{key}` | {bound:,} |" in PAGE
    for most in (spec.MOST_HISTORY_BYTES, spec.MOST_HISTORY_TURNS):
        assert f"up to {most:,}" in PAGE


def test_the_file_on_the_page_can_be_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (tmp_path / "agents.toml").write_text(text)
    (tmp_path / "desk.md").write_text("Be brief.")
    assert {"local", "writer"} <= set(load_agents([], tmp_path / "agents.toml", ground(tmp_path)).names())


def test_every_code_of_an_error_is_in_the_page_of_the_api() -> None:
    codes = [value for name, value in vars(ErrorCode).items() if name.isupper()]
    page = (DOCS / "rest.md").read_text()
    assert not [code for code in codes if f"`{code}`" not in page]


def test_the_links_of_the_page_lead_somewhere() -> None:
    for page in (DOCS / "models.md", DOCS / "examples" / "llm" / "README.md"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page} links to {target}"
