"""What AgentConfig takes and refuses."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from fleetsite.config import AgentConfig, ConfigError

URI = "postgresql://fleet:hidden-word@db.example/fleet"
POSTGRES = {"STATE_DB_URI": URI, "DJANGO_SECRET_KEY": "k" * 60}


@pytest.fixture
def base(tmp_path: Path) -> dict[str, str]:
    return {"AGENT_DATA_DIR": str(tmp_path / "data")}


def refusal(environ: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        AgentConfig.load(environ)
    sentence = str(caught.value)
    assert sentence.startswith(caught.value.variable + " ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert caught.value.__cause__ is None  # nothing that quotes the value rides along
    return caught.value


def test_the_defaults_are_those_of_a_single_host(base: dict[str, str]) -> None:
    config = AgentConfig.load(base)
    assert (config.agent_dispatch_backend, config.queue_backend, config.dispatch_max_depth) == (
        "queue",
        "sqlite",
        100_000,
    )
    assert (config.claim_ttl_s, config.renew_interval_s, config.tick_s) == (120, 30, 5)
    assert (config.worker_heartbeat_s, config.worker_stale_s, config.queue_visibility_timeout_s) == (30, 90, 600)
    assert (config.state_db_uri, config.direct_uri, config.state_db_pool_size) == (None, None, 8)
    assert config.state_path == config.data_dir / "agent_terminal_ui.db"
    assert config.queue_path == config.data_dir / "agent_dispatch_queue.db"
    assert (config.django_debug, config.django_allowed_hosts) == (False, ("localhost", "127.0.0.1", "[::1]"))
    assert (config.agent_modules, config.agent_validation_commands, config.graph_service_endpoints) == ((), (), ())


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"AGENT_DISPATCH_BACKEND": "thread"}, "AGENT_DISPATCH_BACKEND"),
        ({"TASK_QUEUE_BACKEND": "redis"}, "TASK_QUEUE_BACKEND"),
        ({"AGENT_DISPATCH_MAX_DEPTH": "-5"}, "AGENT_DISPATCH_MAX_DEPTH"),
        ({"AGENT_DISPATCH_MAX_DEPTH": "0"}, "AGENT_DISPATCH_MAX_DEPTH"),
        ({"AGENT_DISPATCH_MAX_DEPTH": "many"}, "AGENT_DISPATCH_MAX_DEPTH"),
        ({"AGENT_TURNS_PARTITIONS": "0"}, "AGENT_TURNS_PARTITIONS"),
        ({"STATE_DB_POOL_SIZE": "-1"}, "STATE_DB_POOL_SIZE"),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "soon"}, "AGENT_DISPATCH_CLAIM_TTL_S"),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "301"}, "AGENT_DISPATCH_CLAIM_TTL_S"),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "301", "AGENT_DISPATCH_RENEW_INTERVAL_S": "30"}, "AGENT_DISPATCH_CLAIM_TTL_S"),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "-1"}, "AGENT_DISPATCH_CLAIM_TTL_S"),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "nan"}, "AGENT_DISPATCH_CLAIM_TTL_S"),
        (
            {"AGENT_DISPATCH_CLAIM_TTL_S": "6", "AGENT_DISPATCH_RENEW_INTERVAL_S": "3"},
            "AGENT_DISPATCH_RENEW_INTERVAL_S",
        ),
        ({"AGENT_DISPATCH_RENEW_INTERVAL_S": "-inf"}, "AGENT_DISPATCH_RENEW_INTERVAL_S"),
        ({"AGENT_TICK_S": "inf"}, "AGENT_TICK_S"),
        ({"AGENT_TICK_S": "0"}, "AGENT_TICK_S"),
        ({"AGENT_QUEUE_VISIBILITY_TIMEOUT_S": "-600"}, "AGENT_QUEUE_VISIBILITY_TIMEOUT_S"),
        ({"AGENT_WORKER_HEARTBEAT_S": "NaN"}, "AGENT_WORKER_HEARTBEAT_S"),
        ({"AGENT_WORKER_HEARTBEAT_S": "90"}, "AGENT_WORKER_STALE_S"),
        ({"AGENT_WORKER_STALE_S": "30"}, "AGENT_WORKER_STALE_S"),
        ({"AGENT_RETENTION_JOBS_DAYS": "-1"}, "AGENT_RETENTION_JOBS_DAYS"),
        ({"AGENT_RETENTION_JOBS_DAYS": "never"}, "AGENT_RETENTION_JOBS_DAYS"),
        ({"AGENT_RETENTION_SESSIONS_DAYS": "nan"}, "AGENT_RETENTION_SESSIONS_DAYS"),
        ({"AGENT_RETENTION_AUDIT_DAYS": "inf"}, "AGENT_RETENTION_AUDIT_DAYS"),
        ({"AGENT_RETENTION_JOBS_MAX": "-1"}, "AGENT_RETENTION_JOBS_MAX"),
        ({"AGENT_RETENTION_SESSION_TURNS": "1.5"}, "AGENT_RETENTION_SESSION_TURNS"),
        ({"AGENT_WORKER_HOST_LABEL": "a:b"}, "AGENT_WORKER_HOST_LABEL"),
        ({"AGENT_MODULES": "one,,two"}, "AGENT_MODULES"),
        ({"AGENT_MODULES": "not a module"}, "AGENT_MODULES"),
        ({"AGENT_VALIDATION_COMMANDS": "pytest,bin/check"}, "AGENT_VALIDATION_COMMANDS"),
        ({"AGENTS_FILE": "/no/such/agents.toml"}, "AGENTS_FILE"),
        ({"AGENT_API_KEY_FILE": "/no/such/key"}, "AGENT_API_KEY_FILE"),
        ({"AGENT_DATA_DIR": "data"}, "AGENT_DATA_DIR"),
        ({"AGENT_DATA_DIR": "/dev/null/data"}, "AGENT_DATA_DIR"),
        ({"DJANGO_DEBUG": "perhaps"}, "DJANGO_DEBUG"),
        ({"DJANGO_ALLOWED_HOSTS": "a,"}, "DJANGO_ALLOWED_HOSTS"),
        ({"KAFKA_BOOTSTRAP_SERVERS": "broker"}, "KAFKA_BOOTSTRAP_SERVERS"),
        ({"KAFKA_BOOTSTRAP_SERVERS": "broker:99999"}, "KAFKA_BOOTSTRAP_SERVERS"),
        ({"KAFKA_SASL_PASSWORD": ""}, "KAFKA_SASL_PASSWORD"),
        ({"GRAPH_SERVICE_ENDPOINTS": "http://a:1", "GRAPH_SERVICE_AUTH_SECRET": "s"}, "GRAPH_SERVICE_ENDPOINTS"),
        ({"GRAPH_SERVICE_ENDPOINTS": "tls://a", "GRAPH_SERVICE_AUTH_SECRET": "s"}, "GRAPH_SERVICE_ENDPOINTS"),
        ({"ENGINE_TLS_PROFILE_REF": "https://a"}, "ENGINE_TLS_PROFILE_REF"),
        ({"TASK_QUEUE_BACKEND": ""}, "TASK_QUEUE_BACKEND"),
        ({"STATE_DB_URI": ""}, "STATE_DB_URI"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(f"{k}={v}" for k, v in value.items()),
)
def test_a_wrong_value_is_one_sentence_that_names_its_variable(
    base: dict[str, str], environ: dict[str, str], variable: str
) -> None:
    assert refusal({**base, **environ}).variable == variable


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({**POSTGRES, "TASK_QUEUE_BACKEND": "sqlite"}, "TASK_QUEUE_BACKEND"),
        ({"TASK_QUEUE_BACKEND": "postgres"}, "STATE_DB_URI"),
        ({"STATE_DB_DIRECT_URI": URI}, "STATE_DB_URI"),
        ({"TASK_QUEUE_BACKEND": "kafka"}, "KAFKA_BOOTSTRAP_SERVERS"),
        ({"STATE_DB_URI": URI}, "DJANGO_SECRET_KEY"),
        ({"GRAPH_SERVICE_ENDPOINTS": "tls://engine:7443"}, "GRAPH_SERVICE_AUTH_SECRET"),
    ],
)
def test_a_bad_pair_is_one_sentence_that_names_what_to_change(
    base: dict[str, str], environ: dict[str, str], variable: str
) -> None:
    assert refusal({**base, **environ}).variable == variable


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("AGENT_TYPO", "AGENT_"),
        ("AGENT_DISPATCH_MAX_DEPHT", "AGENT_DISPATCH_MAX_DEPTH"),
        ("AGENT_MODULE", "AGENT_MODULES"),
        ("AGENT_API_KEY", "AGENT_API_KEY_FILE"),
    ],
)
def test_an_unknown_agent_name_is_refused_with_the_nearest_one(base: dict[str, str], name: str, near: str) -> None:
    error = refusal({**base, name: "1"})
    assert error.variable == name
    assert f"the nearest one is {near}" in str(error)


def test_other_peoples_variables_are_left_alone(base: dict[str, str]) -> None:
    AgentConfig.load({**base, "PATH": "/bin", "AGENTLESS": "1", "KAFKA_PORT": "tcp://10.0.0.1:9092", "EMPTY": ""})


@pytest.mark.parametrize(("ttl", "renew"), [("300", 30), ("120", 30), ("6", 2), ("45", 15)])
def test_the_renewal_interval_follows_the_lease(base: dict[str, str], ttl: str, renew: float) -> None:
    assert AgentConfig.load({**base, "AGENT_DISPATCH_CLAIM_TTL_S": ttl}).renew_interval_s == renew


def test_a_renewal_interval_of_exactly_a_third_is_taken(base: dict[str, str]) -> None:
    environ = {**base, "AGENT_DISPATCH_CLAIM_TTL_S": "6", "AGENT_DISPATCH_RENEW_INTERVAL_S": "2"}
    assert AgentConfig.load(environ).renew_interval_s == 2


@pytest.mark.parametrize(
    ("environ", "backend"),
    [
        ({}, "sqlite"),
        ({"TASK_QUEUE_BACKEND": "sqlite"}, "sqlite"),
        (POSTGRES, "postgres"),
        ({**POSTGRES, "TASK_QUEUE_BACKEND": "postgres"}, "postgres"),
        ({"TASK_QUEUE_BACKEND": "kafka", "KAFKA_BOOTSTRAP_SERVERS": "a:9092,[::1]:9093"}, "kafka"),
    ],
)
def test_the_queue_follows_the_state_store_unless_one_is_chosen(
    base: dict[str, str], environ: dict[str, str], backend: str
) -> None:
    assert AgentConfig.load({**base, **environ}).queue_backend == backend


def test_lists_are_separated_by_commas_and_may_be_empty(base: dict[str, str]) -> None:
    environ = {
        **base,
        "AGENT_MODULES": "one, two.three",
        "AGENT_VALIDATION_COMMANDS": "",
        "DJANGO_ALLOWED_HOSTS": "a.example",
    }
    config = AgentConfig.load(environ)
    assert config.agent_modules == ("one", "two.three")
    assert config.agent_validation_commands == ()
    assert config.django_allowed_hosts == ("a.example",)


def test_the_direct_address_is_the_pools_unless_given(base: dict[str, str]) -> None:
    pooled = AgentConfig.load({**base, **POSTGRES})
    assert pooled.direct_uri == pooled.state_db_uri
    direct = AgentConfig.load({**base, **POSTGRES, "STATE_DB_DIRECT_URI": "postgresql://a@b/c"}).direct_uri
    assert direct is not None
    assert direct.get_secret_value() == "postgresql://a@b/c"


def test_the_host_label_never_tells_the_host_name(base: dict[str, str]) -> None:
    one = AgentConfig.load({**base, **POSTGRES}).worker_host_label
    other = AgentConfig.load({**base, **POSTGRES, "DJANGO_SECRET_KEY": "o" * 60}).worker_host_label
    assert one == AgentConfig.load({**base, **POSTGRES}).worker_host_label
    assert one != other  # keyed: it cannot be guessed from a list of names
    assert socket.gethostname() not in one
    assert int(one, 16) >= 0
    assert AgentConfig.load({**base, "AGENT_WORKER_HOST_LABEL": "rack-3"}).worker_host_label == "rack-3"


def test_a_configuration_cannot_be_changed(base: dict[str, str]) -> None:
    config = AgentConfig.load({**base, "KAFKA_SASL_MECHANISM": "PLAIN"})
    with pytest.raises(ValidationError):
        config.tick_s = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.kafka_options["sasl.mechanism"] = "x"  # type: ignore[index]


def test_the_data_directory_is_made_for_its_owner_only(base: dict[str, str]) -> None:
    assert AgentConfig.load(base).data_dir.stat().st_mode & 0o777 == 0o700


def test_the_data_directory_follows_xdg(tmp_path: Path) -> None:
    xdg = {"XDG_DATA_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path)}
    assert AgentConfig.load(xdg).data_dir == tmp_path / "xdg" / "fleetsite"
    for relative in ({}, {"XDG_DATA_HOME": "somewhere"}):
        assert AgentConfig.load({"HOME": str(tmp_path), **relative}).data_dir == tmp_path / ".local/share/fleetsite"


@pytest.mark.parametrize("address", [None, "", "collector:4317", "grpc://collector"])
def test_tracing_needs_the_address_of_a_collector(base: dict[str, str], address: str | None) -> None:
    more = {} if address is None else {"OTEL_EXPORTER_OTLP_ENDPOINT": address}
    assert refusal(base | {"AGENT_TRACING": "1"} | more).variable == "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert AgentConfig.load(base | more).tracing is False, "what is said to others is not ours to refuse"
    assert AgentConfig.load(base | {"AGENT_TRACING": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}).tracing
