"""What agents.toml may say of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatch.agents.registry import COMMAND_SETTLE_S, BadAgent, load_agents
from fleetsite.config import AgentConfig
from tests.dispatch.agents.command.commands import declared, ground

TRUE = 'argv = ["true"]\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "agents.x.argv is not a list of texts"),
        ("argv = []", "agents.x.argv is not a list of texts"),
        ("argv = 'ls'", "agents.x.argv is not a list of texts"),
        ("argv = ['ls', 1]", "agents.x.argv is not a list of texts"),
        ('argv = ["ls", "\\u0000"]', "agents.x.argv has a NUL"),
        ("argv = ['']", "agents.x.argv does not begin with a program"),
        ("argv = ['bin/ls']", "agents.x.argv does not begin with a program"),
        ("argv = ['{task}']", "agents.x.argv does not begin with a program"),
        (TRUE + "stdin = 'file'", "agents.x.stdin is 'file', and not one of task, json, none"),
        (TRUE + "output = ['json']", "agents.x.output is ['json']"),
        (TRUE + "output_limit_bytes = 0", "agents.x.output_limit_bytes"),
        (TRUE + "output_limit_bytes = true", "agents.x.output_limit_bytes"),
        (TRUE + "output_limit_bytes = 1_000_000_000", "agents.x.output_limit_bytes"),
        (TRUE + "env_allow = 'HOME'", "agents.x.env_allow is not a list"),
        (TRUE + "env_allow = ['A=B']", "agents.x.env_allow is not a list of names"),
        (TRUE + "env_allow = ['FLEETSITE_JOB_ID']", "agents.x.env_allow names FLEETSITE_JOB_ID"),
        (TRUE + "env_allow = ['OUR_SECRET']", "agents.x.env_allow names OUR_SECRET, which is a secret of this fleet"),
        (TRUE + "env_set = ['A']", "agents.x.env_set is not a table"),
        (TRUE + "env_set = {'A B' = 'c'}", "agents.x.env_set.A B is not the name"),
        (TRUE + "env_set = {A = 1}", "agents.x.env_set.A is not a text"),
        (TRUE + "env_set = {FLEETSITE_X = 'a'}", "agents.x.env_set.FLEETSITE_X begins with"),
        (TRUE + "cwd = 'work'", "agents.x.cwd is neither"),
        (TRUE + "cwd = 1", "agents.x.cwd is neither"),
        (TRUE + "exit_codes = [0]", "agents.x.exit_codes is not a table"),
        (TRUE + "exit_codes = {suceess = [0]}", "agents.x.exit_codes.suceess is not known"),
        (TRUE + "exit_codes = {retry = 75}", "agents.x.exit_codes.retry is not a list of exit codes"),
        (TRUE + "exit_codes = {retry = [256]}", "agents.x.exit_codes.retry is not a list of exit codes"),
        (TRUE + "exit_codes = {retry = [true]}", "agents.x.exit_codes.retry is not a list of exit codes"),
        (TRUE + "exit_codes = {retry = [1], discard = [1]}", "agents.x.exit_codes.discard has the code 1, which retry"),
        (TRUE + "retry_after_s = '5'", "agents.x.retry_after_s is not a number"),
        (TRUE + "snooze_s = 0", "agents.x.snooze_s is not a number of seconds above 0"),
        (TRUE + "snooze_s = inf", "agents.x.snooze_s is not a number"),
        (TRUE + "timeout_s = 0", "agent x: timeout_s"),
        (TRUE + "stop_grace_s = -1", "agent x: stop_grace_s"),
        (TRUE + "stop_grace_s = 'long'", "agent x: stop_grace_s"),
        (TRUE + "shell = true", "unknown key agents.x.shell; known are kind, argv"),
        (TRUE + "function = 'a:b'", "unknown key agents.x.function"),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence_that_names_agent_and_key(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "agents.toml"
    file.write_text(f"[agents.x]\nkind = 'command'\n{text}")
    with pytest.raises(BadAgent) as refused:
        load_agents([], file, ground(tmp_path))
    assert refused.value.message.startswith("AGENTS_FILE: ")
    assert named in refused.value.message
    assert "\n" not in refused.value.message


def test_a_command_needs_a_process_that_has_a_place_for_it(tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    file.write_text("[agents.x]\nkind = 'command'\nargv = ['true']")
    with pytest.raises(BadAgent, match="no place for one"):
        load_agents([], file)


def test_a_command_waits_on_the_loop_and_its_run_is_given_up_only_some_time_after_the_kill(tmp_path: Path) -> None:
    agent = declared(tmp_path, "/bin/cat", stop_grace_s=2, timeout_s=60, max_attempts=1, on_worker_lost="fail")
    assert (agent.kind, agent.is_async, agent.stop_grace_s) == ("command", True, 2 + COMMAND_SETTLE_S)
    assert (agent.timeout_s, agent.max_attempts, agent.on_worker_lost) == (60, 1, "fail")
    assert agent.description == "Runs the command cat."


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("STATE_DB_URI", True),
        ("STATE_DB_DIRECT_URI_FILE", True),
        ("DJANGO_SECRET_KEY", True),
        ("GRAPH_SERVICE_AUTH_SECRET_FILE", True),
        ("AGENT_API_KEY_FILE", True),
        ("ENGINE_TLS_PROFILE_REF", True),
        ("KAFKA_SASL_PASSWORD", True),
        ("KAFKA_SSL_KEY_PASSWORD_FILE", True),
        ("MODEL_API_KEY", False),
        ("AGENT_DATA_DIR", False),
        ("KAFKA_BOOTSTRAP_SERVERS", False),
    ],
)
def test_the_variables_that_no_command_gets_are_our_secrets_and_the_places_where_they_lie(
    name: str, secret: bool
) -> None:
    assert AgentConfig.is_secret(name) is secret
