"""What `up` does: make the tables, an operator and a key, start web and worker, run one sample turn.

A second run uses the same data, operator and key. The processes are those that an operator would start; the sample
turn goes by REST.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, connections

from fleet.access import api_key_create
from fleet.models import ApiKey

PACKAGES = Path(__file__).resolve().parent.parent  # the checkout, or where the wheel was installed
START_S = 60  # for the web process to answer, and for the sample turn to end
HOST, USUAL_PORT = "127.0.0.1", 8000
STOP_S = 10  # then what still runs is killed
ENDED = {"succeeded", "failed", "cancelled", "dead_letter"}
# The machine's proxy, if it has one, has no business with loopback.
LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Problem(Exception):
    """One sentence for the person at the terminal."""


class Stop(BaseException):
    """A signal asked us to end; `number` tells which."""

    def __init__(self, number: int) -> None:
        self.number = number


class Unauthorized(Problem):
    """The API key is not accepted."""


def say(text: str) -> None:
    print(text, flush=True)


class Fleet:
    """One web process and one worker process on one data directory."""

    def __init__(self, data: Path, door: socket.socket) -> None:
        self.data, self.door = data, door
        self.address = f"http://{HOST}:{door.getsockname()[1]}"
        # the caller's own modules are looked for where the caller is, after all others
        path = [str(PACKAGES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), os.getcwd()]
        own = {"PYTHONPATH": os.pathsep.join(path), "AGENT_DATA_DIR": str(data), "AGENT_DISPATCH_BACKEND": "queue"}
        self.env = {**os.environ, **own}
        self.running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.watch: subprocess.Popen[bytes] | None = None

    def start_web(self) -> None:
        """The web process takes over the listening socket: nobody else can be the one that answers there."""
        number = self.door.fileno()
        gunicorn = ("gunicorn", "-c", "python:fleetsite.gunicorn_conf", "--bind", f"fd://{number}")
        self.start("web", *gunicorn, "fleetsite.wsgi:application", keep=(number,))
        self.door.close()

    def start(self, name: str, module: str, *arguments: str, keep: tuple[int, ...] = ()) -> None:
        watch = self._watched()
        with self._log(name).open("wb") as log:
            # A group of its own: Ctrl-C at the terminal is for this process, which stops the others in order.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                pass_fds=keep,
            )
            self.running.append((name, process))
        watch.write(f"{process.pid}\n".encode())

    def _watched(self) -> IO[bytes]:
        """Where to tell who is to be ended should this process be killed."""
        if self.watch is None:
            argv = [sys.executable, str(PACKAGES / "fleet" / "watch.py"), str(STOP_S)]
            nothing = subprocess.DEVNULL
            self.watch = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, bufsize=0, process_group=0
            )
        assert self.watch.stdin is not None
        return self.watch.stdin

    def stop(self) -> None:
        """SIGTERM to each, and SIGKILL to the group of each that is still there after STOP_S."""
        for _, process in self.running:
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + STOP_S
        for _, process in self.running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.running.clear()
        if self.watch is not None:
            self.watch.communicate(b"over\n")

    def must_run(self) -> None:
        for name, process in self.running:
            code = process.poll()
            if code is not None:
                how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
                told = last_told(self._log(name).read_text(errors="replace"))
                last = f" Its log ends with: {told}" if told else ""
                raise Problem(f"The {name} process {how}, and all of it stops.{last}")

    def until(self, check: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + START_S
        while True:
            answer = check()
            self.must_run()
            if answer:
                return answer
            if time.monotonic() > end:
                raise Problem(f"{what} took more than {START_S} s; the logs are in {self.data / 'logs'}.")
            time.sleep(0.1)

    def call(self, path: str, key: str = "", body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers)
        try:
            with LOOPBACK.open(request, timeout=START_S) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            if error.code == 401:
                raise Unauthorized("The API key is not accepted.") from None
            raise Problem(f"{path} answered {error.code}: {last_line(text)}") from None
        except OSError as error:
            raise Problem(f"{path} did not answer: {error}") from None

    def alive(self) -> bool:
        try:
            with LOOPBACK.open(self.address + "/healthz", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def _log(self, name: str) -> Path:
        place = self.data / "logs"
        place.mkdir(exist_ok=True)
        return place / f"{name}.log"


def up(data: Path, *, port: int | None, once: bool) -> dict[str, Any] | None:
    """Answer the finished sample job when `once`; else stay until a signal, which raises Stop. Refuses by Problem."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    with listen(port) if port else listen_somewhere() as door:
        return run(Fleet(data, door), once)


def run(fleet: Fleet, once: bool) -> dict[str, Any] | None:
    say(f"Data directory: {fleet.data}")
    try:
        key = prepare(fleet)
        say(f"Starting the web process on {fleet.address} and a worker; their logs are in {fleet.data / 'logs'}")
        fleet.start_web()
        fleet.start("worker", "fleetsite", "run_dispatch_worker", "--workers", "2", "--grace", "5")
        fleet.until(fleet.alive, "Starting the web process")
        job = run_sample(fleet, usable(fleet, key))
        if once:
            return job
        say(f"\nThe console: {fleet.address}/admin/\nCtrl-C stops everything.")
        while True:
            fleet.must_run()
            time.sleep(1)
    finally:
        say("Stopping")
        ignore_signals()
        fleet.stop()


def prepare(fleet: Fleet) -> str:
    """Tables and operator; answers the API key."""
    try:
        say("Making the tables")
        call_command("migrate", interactive=False, verbosity=0)
        make_operator()
        return make_key(fleet)
    except DatabaseError as error:
        raise Problem(f"The state store could not be made ready: {last_line(str(error))}") from error
    finally:
        connections.close_all()


def make_operator() -> None:
    users = get_user_model().objects
    if users.filter(username="operator").exists():
        say("Operator: as before (the command `changepassword operator` sets a new password)")
        return
    password = secrets.token_urlsafe(15)
    users.create_superuser("operator", "operator@localhost", password)
    say(f"Operator, shown once: user operator, password {password}")


def make_key(fleet: Fleet) -> str:
    """The key of the first run, or a new one, kept readable for this user alone."""
    place = fleet.data / "quickstart.key"
    if place.exists():
        say(f"API key: as before, kept in {place}")
        return place.read_text().strip()
    _, key = api_key_create(name="quickstart", tenant="demo", scopes=ApiKey.SCOPES)
    with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key + "\n")
    say(f"API key, shown once and kept in {place}: {key}")
    return key


def usable(fleet: Fleet, key: str) -> str:
    """The key, or a new one when the kept key belongs to a store that is gone, has expired or was revoked."""
    try:
        fleet.call("/api/graph/jobs?limit=1", key)
    except Unauthorized:
        (fleet.data / "quickstart.key").unlink(missing_ok=True)
        return make_key(fleet)
    return key


def run_sample(fleet: Fleet, key: str) -> dict[str, Any]:
    """Dispatch one turn of the demo agent, as any caller does, and answer the finished job."""

    def ask(**body: Any) -> Any:
        return fleet.call("/api/graph/jobs", key, body)

    task = "Say hello to the fleet"
    handle = ask(action="dispatch", agent_name="echo", task=task, dependencies="[]")
    say(f"\nDispatched “{task}”: job {handle['job_id']}")
    fleet.until(lambda: ask(action="wait", job_id=handle["job_id"], timeout_s=5)["status"] in ENDED, "The sample turn")
    job: dict[str, Any] = fleet.call(f"/api/graph/jobs/{handle['job_id']}", key)
    say(f"It {job['status']}: {json.dumps(job['error'] or job['result'], ensure_ascii=False)}")
    return job


def listen(port: int) -> socket.socket:
    """Hold the port, so that it is still ours when the web process starts."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {os.strerror(error.errno or 0)}"
        raise Problem(f"Port {port} of {HOST} {why}.") from None


def listen_somewhere() -> socket.socket:
    try:
        return listen(USUAL_PORT)
    except Problem:
        return listen(0)


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def last_told(log: str) -> str:
    """What the process said last. gunicorn ends with lines of its own, which do not say why."""
    return last_line("\n".join(line for line in log.splitlines() if not line.startswith("["))) or last_line(log)


def on_signal(number: int, frame: object) -> NoReturn:
    raise Stop(number)


def ignore_signals() -> None:
    """Stopping takes STOP_S at most; a second Ctrl-C must not leave a process behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
