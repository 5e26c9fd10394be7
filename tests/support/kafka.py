"""One Apache Kafka broker for the tests: KRaft, a single node, loopback, gone when it is stopped.

    python -m tests.support.kafka -- pytest -m kafka

runs a command with KAFKA_TEST_SERVERS pointing at a fresh broker. The jars come from Maven Central, once, into
`$XDG_CACHE_HOME/kafka-broker/VERSION`; that needs `mvn`, running needs `java` 17 or newer.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.own_server import OwnServer
from tests.support.postgres import run, stop_on_sigterm
from tests.support.processes import free_port, until

VERSION = "4.3.1"
SERVERS = "KAFKA_TEST_SERVERS"
CONFIGURATION = Path(__file__).resolve().parent / "broker"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"  # any 22 characters of base64
# quick to start, few threads; not for measuring what a broker can do
JVM = (
    *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    *("-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true"),
)


class NoKafka(Exception):
    """No Kafka broker can be started here."""


def library() -> Path:
    """The directory of the jars, fetched when they are not there; NoKafka when they cannot be."""
    if shutil.which("java") is None:
        raise NoKafka("no Kafka broker can be started: there is no java; install a Java runtime, 17 or newer")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "kafka-broker" / VERSION
    if not (place / ".complete").exists():
        _fetch(place)
    return place


def _fetch(place: Path) -> None:
    if shutil.which("mvn") is None:
        raise NoKafka(f"no Kafka broker can be started: its jars are not in {place} and there is no mvn to fetch them")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as fresh:
        jars = Path(fresh) / "jars"
        _copy_jars(jars, "-P", "slf4j1")
        (jars / ".complete").touch()
        shutil.rmtree(place, ignore_errors=True)
        with suppress(FileExistsError):
            jars.rename(place)


def _copy_jars(jars: Path, *profile: str) -> None:
    argv = ["mvn", "-B", "-q", "-f", CONFIGURATION / "pom.xml", f"-Dkafka.version={VERSION}", *profile]
    argv += [f"{PLUGIN}:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    done = subprocess.run([str(part) for part in argv], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoKafka(f"no Kafka broker can be started: mvn could not fetch its jars: {done.stdout[-500:].strip()}")


def _main_class(jars: Path, *names: str) -> str:
    """The first of the names that the jars have: main classes move between modules from release to release."""
    have: set[str] = set()
    for jar in jars.glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            have.update(archive.namelist())
    for name in names:
        if name.replace(".", "/") + ".class" in have:
            return name
    raise NoKafka(f"none of {', '.join(names)} is in {jars}")


# two more listeners, for clients that come with a name and a password: by TLS, and by a plain connection
GUARDED = """
listeners=PLAINTEXT://127.0.0.1:@PORT@,SECURED://127.0.0.1:@SPORT@,OPEN://127.0.0.1:@OPORT@,CONTROLLER://127.0.0.1:@CPORT@
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL,OPEN:SASL_PLAINTEXT
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location=@KEYS@
listener.name.secured.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secured.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
  user_@USER@="@PASSWORD@";
listener.name.open.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.open.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.open.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may come by the guarded listeners, and the server's key and certificate in one PEM file."""

    keys: Path
    user: str
    password: str


class KafkaBroker(OwnServer):
    """One server. `with KafkaBroker() as broker: broker.servers`; it can be stopped, killed and started again."""

    REMOVE = signal.SIGKILL

    def __init__(self, access: Access | None = None) -> None:
        """`access`: with two more listeners, of SASL over TLS at `secured`, and without at `open`."""
        super().__init__()
        self._jars = library()
        self.port = free_port()
        self._secured_port = free_port()
        self._open_port = free_port()
        self._controller_port = free_port()
        self._access = access

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secured(self) -> str:
        return f"127.0.0.1:{self._secured_port}"

    @property
    def open(self) -> str:
        return f"127.0.0.1:{self._open_port}"

    def start(self) -> None:
        """Format on first use, start, answer when it listens."""
        if self._home is None:
            self._make()
        assert self._home is not None
        main = _main_class(self._jars, "kafka.Kafka", "org.apache.kafka.server.Kafka")
        with (self._home / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                [*self._java(), main, str(self._home / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                process_group=0,  # Ctrl-C at the terminal is for the tests; the broker is stopped after them
            )
        until(self._listens, 60, "the Kafka broker listens", every=0.1)

    def freeze(self) -> None:
        """It holds its connections and answers nothing, until `thaw`."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._server is not None
        self._server.send_signal(signal.SIGCONT)

    def log(self) -> str:
        return (self._home / "server.log").read_text(errors="replace")[-4000:] if self._home else ""

    def _java(self) -> list[str]:
        logging = f"-Dlog4j2.configurationFile=file:{CONFIGURATION / 'log4j2.properties'}"
        return ["java", *JVM, logging, f"-Dkafka.logs.dir={self._home}", "-cp", f"{self._jars}/*"]

    def _make(self) -> None:
        self._home = home = Path(tempfile.mkdtemp(prefix="fleetsite-kafka-"))
        known: dict[str, object] = {
            "@PORT@": self.port,
            "@SPORT@": self._secured_port,
            "@OPORT@": self._open_port,
            "@CPORT@": self._controller_port,
            "@DATA@": home / "data",
        }
        text = (CONFIGURATION / "server.properties").read_text()
        if self._access is not None:
            text += GUARDED  # of two lines with one name the last holds
            known |= {"@KEYS@": self._access.keys, "@USER@": self._access.user, "@PASSWORD@": self._access.password}
        for mark, value in known.items():
            text = text.replace(mark, str(value))
        (home / "server.properties").write_text(text)
        tool = _main_class(self._jars, "kafka.tools.StorageTool", "org.apache.kafka.tools.StorageTool")
        argv = [*self._java(), tool, "format", "--standalone", "--cluster-id", CLUSTER_ID]
        argv += ["--config", str(home / "server.properties")]
        if self._access is not None:
            who = f"name={self._access.user},password={self._access.password}"
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                argv += ["--add-scram", f"{mechanism}=[{who}]"]
        done = subprocess.run(argv, cwd=home, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the broker's storage could not be formatted: {done.stdout}{done.stderr}")

    def _listens(self) -> bool:
        if self._server is None or self._server.poll() is not None:
            raise RuntimeError(f"Kafka ended while it started:\n{self.log()}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


def environment(broker: KafkaBroker) -> dict[str, str]:
    """This process's variables with the broker for the tests."""
    return {**os.environ, SERVERS: broker.servers}


if __name__ == "__main__":
    command = sys.argv[2:] if sys.argv[1:2] == ["--"] else []
    if not command:
        sys.exit("usage: python -m tests.support.kafka -- COMMAND [ARGUMENT…]")
    stop_on_sigterm()
    try:
        own = KafkaBroker()
    except NoKafka as refusal:
        sys.exit(str(refusal))
    with own:
        sys.exit(run(command, environment(own)))
