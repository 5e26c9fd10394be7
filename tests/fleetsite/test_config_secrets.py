"""Secrets: their `_FILE` forms, the key that is made once, and that none is ever shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleetsite.config import AgentConfig, ConfigError
from fleetsite.secret_files import keep_secret_key

WORD = "hidden-word"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def base(tmp_path: Path) -> dict[str, str]:
    return {"AGENT_DATA_DIR": str(tmp_path / "data")}


SECRETS = {
    "STATE_DB_URI": f"postgresql://fleet:{WORD}@db/fleet",
    "STATE_DB_DIRECT_URI": f"postgresql://fleet:{WORD}@db/fleet",
    "DJANGO_SECRET_KEY": WORD * 6,
    "GRAPH_SERVICE_AUTH_SECRET": WORD,
    "KAFKA_SASL_PASSWORD": WORD,
    "KAFKA_SSL_KEY_PASSWORD": WORD,
}


def test_no_secret_is_in_what_a_configuration_prints(base: dict[str, str]) -> None:
    config = AgentConfig.load({**base, **SECRETS})
    assert WORD not in repr(config) + str(config) + config.model_dump_json()


@pytest.mark.parametrize(
    "uri",
    [
        f"mysql://fleet:{WORD}@db/fleet",
        f"postgresql://fleet:{WORD}@db",
        f"postgresql://fleet:{WORD}@db/fleet?bogus=1",
        f"postgresql://fleet:{WORD}%zz@db/fleet",
        f"postgresql://fleet:{WORD}@[db/fleet",
        f"fleet:{WORD}@db/fleet",
    ],
)
@pytest.mark.parametrize("name", ["STATE_DB_URI", "STATE_DB_DIRECT_URI"])
def test_a_wrong_address_is_refused_without_its_password(base: dict[str, str], name: str, uri: str) -> None:
    good = {"STATE_DB_URI": "postgresql://a@b/c", "DJANGO_SECRET_KEY": "k" * 60}
    with pytest.raises(ConfigError) as caught:
        AgentConfig.load({**base, **good, name: uri})
    assert caught.value.variable == name
    assert WORD not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["KAFKA_BOOTSTRAP_SERVERS", "GRAPH_SERVICE_ENDPOINTS", "ENGINE_TLS_PROFILE_REF"])
def test_a_refused_address_is_not_quoted(base: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AgentConfig.load({**base, name: f"tls://user:{WORD}@host:1,x y", "GRAPH_SERVICE_AUTH_SECRET": "s"})
    assert caught.value.variable == name
    assert WORD not in str(caught.value)


@pytest.mark.parametrize("name", SECRETS)
def test_every_secret_can_come_from_a_file(base: dict[str, str], tmp_path: Path, name: str) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRETS[name] + "\n")
    plain = AgentConfig.load({**base, **SECRETS})
    others = {key: value for key, value in SECRETS.items() if key != name}
    assert AgentConfig.load({**base, **others, f"{name}_FILE": str(file)}) == plain


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_and_its_file_at_once_are_refused(base: dict[str, str], tmp_path: Path, name: str) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRETS[name])
    with pytest.raises(ConfigError, match=f"^{name} and {name}_FILE are both set") as caught:
        AgentConfig.load({**base, **SECRETS, f"{name}_FILE": str(file)})
    assert WORD not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"], ids=["missing", "empty", "blank", "binary"])
def test_a_secret_file_that_holds_no_secret_is_refused(
    base: dict[str, str], tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigError, match=r"^DJANGO_SECRET_KEY_FILE cannot be read: .+\.$"):
        AgentConfig.load({**base, "DJANGO_SECRET_KEY_FILE": str(tmp_path / "secret")})


def test_kafka_options_carry_the_clients_own_names(base: dict[str, str]) -> None:
    environ = {
        **base,
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SSL_CA_LOCATION": "/ca.pem",
        "KAFKA_SASL_PASSWORD": WORD,
    }
    options = {name: value.get_secret_value() for name, value in AgentConfig.load(environ).kafka_options.items()}
    assert options == {"security.protocol": "SASL_SSL", "ssl.ca.location": "/ca.pem", "sasl.password": WORD}


def test_the_secret_key_is_made_once_and_kept_for_its_owner_only(base: dict[str, str]) -> None:
    first, second = AgentConfig.load(base), AgentConfig.load(base)
    file = first.data_dir / "secret_key"
    assert first.django_secret_key == second.django_secret_key
    assert len(first.django_secret_key.get_secret_value()) >= 50
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(first.data_dir.iterdir()) == [file]  # no draft is left behind


def test_a_kept_key_that_others_could_read_is_closed_again(tmp_path: Path) -> None:
    key = keep_secret_key(tmp_path / "secret_key")
    (tmp_path / "secret_key").chmod(0o644)
    assert keep_secret_key(tmp_path / "secret_key") == key
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600


def test_a_kept_key_that_is_cut_short_is_refused_and_not_replaced(base: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "secret_key").write_text("short")
    with pytest.raises(ConfigError, match=r"^DJANGO_SECRET_KEY is not set"):
        AgentConfig.load(base)
    assert (tmp_path / "data" / "secret_key").read_text() == "short"


def test_no_key_is_kept_where_one_is_given(base: dict[str, str]) -> None:
    config = AgentConfig.load({**base, "DJANGO_SECRET_KEY": "k" * 60})
    assert list(config.data_dir.iterdir()) == []


RACER = """
import sys
from pathlib import Path
from fleetsite.secret_files import keep_secret_key
print("ready", flush=True)
sys.stdin.readline()
print(keep_secret_key(Path(sys.argv[1])), flush=True)
"""


@pytest.mark.parametrize("attempt", range(3))
def test_processes_that_start_together_agree_on_one_key(tmp_path: Path, attempt: int) -> None:
    path = tmp_path / "secret_key"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path)], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    keys = {racer.communicate(timeout=30)[0].strip() for racer in racers}
    assert keys == {path.read_text().strip()}
    assert list(tmp_path.iterdir()) == [path]


def test_a_secret_that_a_users_file_names_comes_from_its_variable_or_its_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{WORD}\n")
    assert AgentConfig.named_secret({"MODEL_KEY": WORD}, "MODEL_KEY") == WORD
    assert AgentConfig.named_secret({"MODEL_KEY_FILE": str(file)}, "MODEL_KEY") == WORD
    assert AgentConfig.named_secret({}, "MODEL_KEY") is None
    with pytest.raises(ValueError, match="are both set"):
        AgentConfig.named_secret({"MODEL_KEY": WORD, "MODEL_KEY_FILE": str(file)}, "MODEL_KEY")
    for wrong, words in ((tmp_path / "none", "no such file"), (tmp_path, "directory")):
        with pytest.raises(ValueError, match=words) as refused:
            AgentConfig.named_secret({"MODEL_KEY_FILE": str(wrong)}, "MODEL_KEY")
        assert str(tmp_path) not in str(refused.value)
