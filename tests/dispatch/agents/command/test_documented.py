"""What the documents show of commands is so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dispatch.agents.command.spec import ENDINGS, KEYS, OUTPUT, STDIN
from dispatch.agents.command.surroundings import COMMON
from dispatch.agents.registry import Registry, load_agents
from dispatch.outcomes import InputAsked, Succeeded
from tests.dispatch.agents.command.commands import ground, run
from tests.dispatch.agents.turn_store import MemoryTurnStore, lease

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "agents.md").read_text()


def block(language: str, *, holding: str) -> str:
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.S) if holding in text]
    return str(found)


def loaded(place: Path, text: str) -> Registry:
    (place / "agents.toml").write_text(text)
    return load_agents([], place / "agents.toml", ground(place))


@pytest.mark.parametrize("key", KEYS)
def test_every_key_has_its_row(key: str) -> None:
    assert f"| `{key}` |" in PAGE, f"docs/agents.md, Commands: the table of keys lacks {key}"


@pytest.mark.parametrize("word", [*ENDINGS, *OUTPUT, *STDIN, *COMMON])
def test_every_value_and_variable_is_named(word: str) -> None:
    assert re.search(rf"[`\"]{word}[`\"]", PAGE), f"docs/agents.md, Commands, does not name {word}"


@pytest.mark.process
def test_the_example_of_the_readme_counts_four_words(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (lines,) = re.findall(r"(?:^    .*\n)+", readme[readme.index("    [agents.wordcount]") :], re.M)[:1]
    agent = loaded(tmp_path, "\n".join(line.strip() for line in lines.splitlines())).get("wordcount")
    assert agent is not None
    outcome = run(agent, task="count these four words")
    assert isinstance(outcome, Succeeded)
    assert outcome.result.strip() == "4"


@pytest.mark.process
def test_the_example_with_lines_keeps_a_count_and_asks_before_it_forgets_it(tmp_path: Path) -> None:
    (tmp_path / "counter.py").write_text(block("python", holding="# counter.py"))
    text = block("toml", holding="[agents.coder]").replace(
        '"python3", "/srv/agents', f'"{sys.executable}", "{tmp_path}'
    )
    registry = loaded(tmp_path, text)
    assert set(registry.names()) >= {"wordcount", "coder", "counter"}
    counter = registry.get("counter")
    assert counter is not None
    counted = run(counter, state={"count": 2})
    assert counted == Succeeded(result={"count": 3}, state={"count": 3})
    assert run(counter, task="reset") == InputAsked(question="Forget the count?", choices=("yes", "no"))
    answered = run(counter, MemoryTurnStore(answer="yes"), task="reset", resumed=True, state=lease().state)
    assert answered == Succeeded(result={"count": 0}, state={"count": 0})
