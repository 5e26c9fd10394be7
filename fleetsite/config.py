"""What an operator can set: `AgentConfig`, the only reader of the environment.

A value is checked once, at start. Whatever is wrong stops the process with one sentence that names the variable and
never quotes a secret. Whether something that was chosen can be reached, or is available at all, is for the wiring.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
import re
import socket
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fleetsite.secret_files import keep_secret_key, read_secret
from fleetsite.seed_names import DAEMON_ROLE_CLIENT, DAEMON_ROLE_VARIABLE, STATE_FILE
from fleetsite.setting_types import (
    Count,
    CountOrNone,
    DaysOrNone,
    Endpoints,
    Executables,
    Modules,
    Names,
    PostgresURI,
    ReadableFile,
    Seconds,
    Secret,
    SecretOptions,
    Servers,
)

QUEUE_FILE = "agent_dispatch_queue.db"
KEY_FILE = "secret_key"
MAX_CLAIM_TTL_S = 300  # the published recovery objective

# Pass through to the Kafka client: KAFKA_SASL_MECHANISM is its option sasl.mechanism.
KAFKA_OPTION = re.compile(r"KAFKA_(?:SECURITY|SASL|SSL)_[A-Z0-9_]+")
KAFKA_SECRET_FILE = re.compile(r"(KAFKA_(?:SASL|SSL)_[A-Z0-9_]*(?:PASSWORD|SECRET|PASSPHRASE))_FILE")


class ConfigError(Exception):
    """A setting is wrong. The message is one sentence that names the variable; `variable` is its name."""

    def __init__(self, variable: str, problem: str) -> None:
        self.variable = variable
        super().__init__(f"{variable} {problem}.")


class AgentConfig(BaseModel):
    """Every setting, resolved: an alias is the variable's name."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    agent_dispatch_backend: Literal["queue", "inline"] = Field("queue", alias="AGENT_DISPATCH_BACKEND")
    task_queue_backend: Literal["sqlite", "postgres", "kafka"] | None = Field(None, alias="TASK_QUEUE_BACKEND")
    dispatch_max_depth: Count = Field(100_000, alias="AGENT_DISPATCH_MAX_DEPTH")

    state_db_uri: PostgresURI | None = Field(None, alias="STATE_DB_URI")
    state_db_direct_uri: PostgresURI | None = Field(None, alias="STATE_DB_DIRECT_URI")
    state_db_pool_size: Count = Field(8, alias="STATE_DB_POOL_SIZE")
    data_dir: Path = Field(alias="AGENT_DATA_DIR")

    kafka_bootstrap_servers: Servers = Field((), alias="KAFKA_BOOTSTRAP_SERVERS")
    agent_turns_partitions: Count = Field(6, alias="AGENT_TURNS_PARTITIONS")
    kafka_group_protocol: Literal["classic", "consumer"] = Field("classic", alias="KAFKA_GROUP_PROTOCOL")
    kafka_group_instance_id: str | None = Field(
        None, alias="KAFKA_GROUP_INSTANCE_ID", pattern=r"^[A-Za-z0-9._-]{1,200}$"
    )
    kafka_publish_timeout_s: Seconds = Field(5.0, alias="KAFKA_PUBLISH_TIMEOUT_S", le=60)
    kafka_max_poll_interval_s: Seconds = Field(300.0, alias="KAFKA_MAX_POLL_INTERVAL_S")
    kafka_options: SecretOptions  # the client's own option names; any of them may be a secret

    claim_ttl_s: Seconds = Field(120.0, alias="AGENT_DISPATCH_CLAIM_TTL_S", le=MAX_CLAIM_TTL_S)
    renew_interval_s: Seconds = Field(
        default_factory=lambda data: min(30.0, data["claim_ttl_s"] / 3), alias="AGENT_DISPATCH_RENEW_INTERVAL_S"
    )
    kafka_session_timeout_s: Seconds = Field(
        default_factory=lambda data: min(45.0, max(6.0, data["claim_ttl_s"] / 2)),
        alias="KAFKA_SESSION_TIMEOUT_S",
        validate_default=True,
    )
    tick_s: Seconds = Field(5.0, alias="AGENT_TICK_S")
    queue_visibility_timeout_s: Seconds = Field(600.0, alias="AGENT_QUEUE_VISIBILITY_TIMEOUT_S")
    worker_heartbeat_s: Seconds = Field(30.0, alias="AGENT_WORKER_HEARTBEAT_S")
    worker_stale_s: Seconds = Field(90.0, alias="AGENT_WORKER_STALE_S", validate_default=True)

    # 0: kept for ever, or as many as there are
    retention_jobs_days: DaysOrNone = Field(30.0, alias="AGENT_RETENTION_JOBS_DAYS")
    retention_jobs_max: CountOrNone = Field(0, alias="AGENT_RETENTION_JOBS_MAX")
    retention_sessions_days: DaysOrNone = Field(90.0, alias="AGENT_RETENTION_SESSIONS_DAYS")
    retention_sessions_max: CountOrNone = Field(0, alias="AGENT_RETENTION_SESSIONS_MAX")
    retention_session_turns: CountOrNone = Field(100, alias="AGENT_RETENTION_SESSION_TURNS")
    retention_audit_days: DaysOrNone = Field(365.0, alias="AGENT_RETENTION_AUDIT_DAYS")
    retention_audit_max: CountOrNone = Field(0, alias="AGENT_RETENTION_AUDIT_MAX")
    retention_dead_envelopes_days: DaysOrNone = Field(30.0, alias="AGENT_RETENTION_DEAD_ENVELOPES_DAYS")
    retention_dead_envelopes_max: CountOrNone = Field(10_000, alias="AGENT_RETENTION_DEAD_ENVELOPES_MAX")
    retention_samples_days: DaysOrNone = Field(30.0, alias="AGENT_RETENTION_SAMPLES_DAYS")

    webhook_allow_private: bool = Field(False, alias="AGENT_WEBHOOK_ALLOW_PRIVATE")
    webhook_timeout_s: Seconds = Field(10.0, alias="AGENT_WEBHOOK_TIMEOUT_S", le=60)
    webhook_tries: Count = Field(16, alias="AGENT_WEBHOOK_TRIES", le=100)

    agents_file: ReadableFile | None = Field(None, alias="AGENTS_FILE")
    agent_modules: Modules = Field((), alias="AGENT_MODULES")
    agent_validation_commands: Executables = Field((), alias="AGENT_VALIDATION_COMMANDS")
    agent_api_key_file: ReadableFile | None = Field(None, alias="AGENT_API_KEY_FILE")

    django_secret_key: Secret = Field(alias="DJANGO_SECRET_KEY")
    django_debug: bool = Field(False, alias="DJANGO_DEBUG")
    django_https: bool = Field(False, alias="DJANGO_HTTPS")
    django_allowed_hosts: Names = Field(("localhost", "127.0.0.1", "[::1]"), alias="DJANGO_ALLOWED_HOSTS")
    worker_host_label: str = Field(
        default_factory=lambda data: host_digest(data["django_secret_key"]),
        alias="AGENT_WORKER_HOST_LABEL",
        pattern=r"^[A-Za-z0-9._@-]{1,100}$",
    )

    tracing: bool = Field(False, alias="AGENT_TRACING")
    otlp_endpoint: str | None = Field(None, alias="OTEL_EXPORTER_OTLP_ENDPOINT")  # which the SDK reads for itself

    graph_service_endpoints: Endpoints = Field((), alias="GRAPH_SERVICE_ENDPOINTS")
    graph_service_auth_secret: Secret | None = Field(None, alias="GRAPH_SERVICE_AUTH_SECRET")
    engine_tls_profile_ref: str | None = Field(
        None, alias="ENGINE_TLS_PROFILE_REF", pattern=r"^(?:file|env|vault)://\S+$"
    )

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> AgentConfig:
        """Check `environ` and resolve every default; make the data directory, and the secret key where none is needed
        from outside. Raise ConfigError for the first thing that is wrong."""
        _refuse_unknown(environ)
        values: dict[str, Any] = {name: value for name in VARIABLES if (value := _value(environ, name)) is not None}
        values["kafka_options"] = _kafka_options(environ)
        values["AGENT_DATA_DIR"] = _data_dir(environ, values.get("AGENT_DATA_DIR"))
        if "DJANGO_SECRET_KEY" not in values:
            if "STATE_DB_URI" in values:
                raise ConfigError(
                    "DJANGO_SECRET_KEY", "must be set when STATE_DB_URI is set, to the same value on every host"
                )
            values["DJANGO_SECRET_KEY"] = _kept_key(values["AGENT_DATA_DIR"])
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise _sentence(error, values) from None

    @field_validator("renew_interval_s")
    @classmethod
    def _renews_in_time(cls, value: float, info: ValidationInfo) -> float:
        ttl = info.data.get("claim_ttl_s")
        if ttl is not None and value > ttl / 3:
            raise ValueError(f"must be at most a third of AGENT_DISPATCH_CLAIM_TTL_S, which is {ttl:g} s")
        return value

    @field_validator("kafka_session_timeout_s")
    @classmethod
    def _polls_within_the_session(cls, value: float, info: ValidationInfo) -> float:
        most = info.data.get("kafka_max_poll_interval_s")
        if most is not None and value > most:
            raise ValueError(f"must be at most KAFKA_MAX_POLL_INTERVAL_S, which is {most:g} s")
        return value

    @field_validator("worker_stale_s")
    @classmethod
    def _stale_after_a_beat(cls, value: float, info: ValidationInfo) -> float:
        beat = info.data.get("worker_heartbeat_s")
        if beat is not None and value <= beat:
            raise ValueError(f"must be longer than AGENT_WORKER_HEARTBEAT_S, which is {beat:g} s")
        return value

    @model_validator(mode="after")
    def _pairs(self) -> AgentConfig:
        if self.state_db_uri and self.task_queue_backend == "sqlite":
            raise ConfigError("TASK_QUEUE_BACKEND", "must not be sqlite when STATE_DB_URI is set")
        if not self.state_db_uri and self.task_queue_backend == "postgres":
            raise ConfigError("STATE_DB_URI", "must be set when TASK_QUEUE_BACKEND is postgres")
        if not self.state_db_uri and self.state_db_direct_uri:
            raise ConfigError("STATE_DB_URI", "must be set when STATE_DB_DIRECT_URI is set")
        if not self.kafka_bootstrap_servers and self.task_queue_backend == "kafka":
            raise ConfigError("KAFKA_BOOTSTRAP_SERVERS", "must be set when TASK_QUEUE_BACKEND is kafka")
        if self.graph_service_endpoints and not self.graph_service_auth_secret:
            raise ConfigError("GRAPH_SERVICE_AUTH_SECRET", "must be set when GRAPH_SERVICE_ENDPOINTS is set")
        if self.tracing and not (self.otlp_endpoint or "").startswith(("http://", "https://")):
            raise ConfigError(
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "must be a collector's http:// or https:// address when AGENT_TRACING is on",
            )
        return self

    @property
    def daemon_role(self) -> tuple[str, str]:
        """The variable and value that a worker sets for itself and what it starts."""
        return DAEMON_ROLE_VARIABLE, DAEMON_ROLE_CLIENT

    @staticmethod
    def is_secret(variable: str) -> bool:
        """Whether a variable of this name holds a secret of ours, or says where one lies."""
        name = variable.removesuffix("_FILE")
        return (
            name in SECRETS or name in ("AGENT_API_KEY", "ENGINE_TLS_PROFILE_REF") or bool(KAFKA_OPTION.fullmatch(name))
        )

    @staticmethod
    def named_secret(environ: Mapping[str, str], name: str) -> str | None:
        """What a variable that a user's file names holds, or the file of its `_FILE` form; None when neither is set.

        Raise ValueError for both, and for a file that cannot be read.
        """
        if f"{name}_FILE" not in environ:
            return environ.get(name)
        if name in environ:
            raise ValueError("it and its _FILE form are both set; set one of them")
        try:
            return read_secret(Path(environ[f"{name}_FILE"]))
        except (OSError, ValueError) as error:
            raise ValueError(f"its _FILE cannot be read: {_reason(error)}") from None

    @property
    def queue_backend(self) -> Literal["sqlite", "postgres", "kafka"]:
        """The transport: what was chosen, else Postgres where the state store is there, else SQLite."""
        return self.task_queue_backend or ("postgres" if self.state_db_uri else "sqlite")

    @property
    def direct_uri(self) -> SecretStr | None:
        """The address for LISTEN and leadership."""
        return self.state_db_direct_uri or self.state_db_uri

    @property
    def state_path(self) -> Path:
        """The state store's file on SQLite."""
        return self.data_dir / STATE_FILE

    @property
    def queue_path(self) -> Path:
        """The queue's file on SQLite."""
        return self.data_dir / QUEUE_FILE


VARIABLES = tuple(field.alias for field in AgentConfig.model_fields.values() if field.alias)
SECRETS = frozenset({"STATE_DB_URI", "STATE_DB_DIRECT_URI", "DJANGO_SECRET_KEY", "GRAPH_SERVICE_AUTH_SECRET"})
KNOWN = frozenset(VARIABLES) | {f"{name}_FILE" for name in SECRETS}
# OTEL_… are not ours to refuse while nothing is traced
MAY_BE_EMPTY = frozenset({"AGENT_MODULES", "AGENT_VALIDATION_COMMANDS", "OTEL_EXPORTER_OTLP_ENDPOINT"})
QUOTED = frozenset(
    {
        "float_parsing",
        "int_parsing",
        "bool_parsing",
        "literal_error",
        "greater_than",
        "less_than_equal",
        "greater_than_equal",
    }
)


def host_digest(key: SecretStr) -> str:
    """Name this host without telling its name: stable while host name and secret key are."""
    return hmac.new(key.get_secret_value().encode(), socket.gethostname().encode(), hashlib.sha256).hexdigest()[:12]


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    for name in sorted(environ):
        if name.startswith("AGENT_") and name not in KNOWN:
            near = get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.0)[0]
            raise ConfigError(name, f"is not a setting; the nearest one is {near}")


def _value(environ: Mapping[str, str], name: str) -> str | None:
    """The variable's value, or for a secret what its `_FILE` holds; None when it is unset."""
    value = environ.get(name)
    if name in SECRETS and f"{name}_FILE" in environ:
        if value is not None:
            raise ConfigError(name, f"and {name}_FILE are both set; set one of them")
        return _from_file(environ, f"{name}_FILE")
    if value is not None and not value.strip() and name not in MAY_BE_EMPTY:
        raise ConfigError(name, "is set but empty; give it a value or unset it")
    return value


def _from_file(environ: Mapping[str, str], name: str) -> str:
    try:
        return read_secret(Path(environ[name]))
    except (OSError, ValueError) as error:
        raise ConfigError(name, f"cannot be read: {_reason(error)}") from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "the file is not UTF-8 text"
    return (error.strerror or type(error).__name__).lower() if isinstance(error, OSError) else str(error)


def _kafka_options(environ: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name in sorted(environ):
        secret = KAFKA_SECRET_FILE.fullmatch(name)
        if not KAFKA_OPTION.fullmatch(name):
            continue
        variable = secret[1] if secret else name
        if secret and variable in environ:
            raise ConfigError(variable, f"and {name} are both set; set one of them")
        if not environ[name]:
            raise ConfigError(name, "is set but empty; give it a value or unset it")
        options[variable.removeprefix("KAFKA_").lower().replace("_", ".")] = (
            _from_file(environ, name) if secret else environ[name]
        )
    return options


def _data_dir(environ: Mapping[str, str], given: str | None) -> Path:
    """Find the data directory and make it, mode 0700. What exists keeps its mode."""
    if given is not None:
        path = Path(given)
        if not path.is_absolute():
            raise ConfigError("AGENT_DATA_DIR", "must be an absolute path, so that every process means the same one")
    else:
        xdg = environ.get("XDG_DATA_HOME", "")
        home = environ.get("HOME") or _home()
        # the XDG rules: a relative path there is ignored
        path = (Path(xdg) if Path(xdg).is_absolute() else Path(home) / ".local" / "share") / "fleetsite"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ConfigError("AGENT_DATA_DIR", f"names a directory that cannot be made: {_reason(error)}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError("AGENT_DATA_DIR", "names a directory that this user cannot write")
    return path


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise ConfigError("AGENT_DATA_DIR", "must be set, because this user has no home directory") from None


def _kept_key(data_dir: Path) -> str:
    try:
        return keep_secret_key(data_dir / KEY_FILE)
    except (OSError, ValueError) as error:
        problem = f"is not set, and {data_dir / KEY_FILE} cannot serve instead: {_reason(error)}"
        raise ConfigError("DJANGO_SECRET_KEY", problem) from None


def _sentence(error: ValidationError, values: Mapping[str, Any]) -> ConfigError:
    """Say the first error in one sentence. Only what cannot hold a secret is quoted: numbers, switches, choices."""
    first = next(
        e for e in error.errors(include_input=False, include_url=False) if e["type"] != "default_factory_not_called"
    )
    name = str(first["loc"][0])
    if name in AgentConfig.model_fields:  # a default is at fault, which pydantic knows by its attribute
        name = AgentConfig.model_fields[name].alias or name
    cause = first.get("ctx", {}).get("error")
    problem = str(cause) if cause else first["msg"].replace("Input should be", "must be").rstrip(".")
    if first["type"] in QUOTED:
        problem += f", not {str(values[name])[:40]!r}"
    elif first["type"] == "string_pattern_mismatch":
        problem = PATTERNS[name]
    return ConfigError(name, problem)


PATTERNS = {
    "AGENT_WORKER_HOST_LABEL": "must be 1 to 100 letters, digits, dots, underscores, at signs or hyphens",
    "KAFKA_GROUP_INSTANCE_ID": "must be 1 to 200 letters, digits, dots, underscores or hyphens",
    "ENGINE_TLS_PROFILE_REF": "must begin with file://, env:// or vault://",
}
