"""One POST to a real receiver: what is taken for an answer, and how long it may take."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from dispatch.webhooks.posting import REFUSED, Posted, post
from dispatch.webhooks.signing import headers, secret_of, signature
from tests.support.certificates import Certificates
from tests.support.processes import free_port
from tests.support.receiver import DRIP, HANG, Receiver

BODY = b'{"type":"job.succeeded"}'


def send(url: str, *, timeout_s: float = 5, allow_private: bool = True, **more: object) -> Posted:
    sent = {"Content-Type": "application/json"}
    return post(url, BODY, sent, timeout_s=timeout_s, allow_private=allow_private, **more)  # type: ignore[arg-type]


def test_the_receiver_gets_the_body_as_it_is_and_the_path_with_its_query() -> None:
    with Receiver() as receiver:
        answer = send(f"{receiver.url}?build=17")
    assert (answer.status, answer.taken) == (200, True)
    (call,) = receiver.calls
    assert (call.path, call.raw) == ("/hooks?build=17", BODY)
    assert call.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert call.headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [301, 302, 307, 400, 410, 500, 503])
def test_another_status_is_not_taken_and_no_redirect_is_followed(status: int) -> None:
    with Receiver(status) as receiver:
        answer = send(receiver.url)
    assert (answer.status, answer.taken, answer.gone) == (status, False, status == 410)
    assert [call.path for call in receiver.calls] == ["/hooks"]


@pytest.mark.parametrize("way", [HANG, DRIP])
def test_a_receiver_that_takes_its_time_is_left(way: str) -> None:
    with Receiver(way) as receiver:
        began = time.monotonic()
        answer = send(receiver.url, timeout_s=0.5)
        assert time.monotonic() - began < 5
    assert (answer.status, answer.error) == (None, "timeout")


def test_nobody_there_is_a_failed_connection() -> None:
    assert send(f"http://127.0.0.1:{free_port()}/").error == "connection failed"


def test_a_name_that_is_none_is_not_resolved() -> None:
    def nowhere(host: str, port: int) -> list[str]:
        raise socket.gaierror("no such name")

    assert send("http://nowhere.example.org/", resolve=nowhere).error == "name not resolved"


def test_a_receiver_that_speaks_no_tls_fails() -> None:
    with Receiver() as receiver:
        answer = send(receiver.url.replace("http://", "https://"))
    assert answer.error in ("TLS failed", "connection failed")
    assert receiver.calls == []


def test_tls_is_verified_by_the_name_and_not_by_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Certificates.make(tmp_path / "ours")

    def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    with Receiver(certificate=ours.server) as receiver:
        known, other = f"https://localhost:{receiver.port}/h", f"https://evil.example.org:{receiver.port}/h"
        assert send(known, resolve=here).error == "TLS failed", "nobody vouches for it"
        monkeypatch.setenv("SSL_CERT_FILE", str(ours.ca))
        assert send(known, resolve=here).status == 200
        assert send(other, resolve=here).error == "TLS failed", "it is another's certificate"
    assert [call.headers["host"] for call in receiver.calls] == [f"localhost:{receiver.port}"]


def test_a_handshake_that_never_ends_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        answer = send(f"https://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.5)
        assert time.monotonic() - began < 5
    assert answer.error == "timeout"


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "https://localhost:{port}/"])
def test_private_addresses_and_plain_http_are_refused_unless_allowed(url: str) -> None:
    with Receiver() as receiver:
        assert send(url.format(port=receiver.port), allow_private=False) == Posted(error=REFUSED)
    assert receiver.calls == []


def test_the_name_is_resolved_once_and_the_connection_goes_where_that_led() -> None:
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        """The first answer is good; whoever asked again would be led astray."""
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    with Receiver() as receiver:
        answer = send(f"http://rebind.example.org:{receiver.port}/h", resolve=rebinding)
    assert answer.taken
    assert asked == ["rebind.example.org"]
    assert receiver.calls[0].headers["host"] == f"rebind.example.org:{receiver.port}"


def test_an_address_that_was_refused_is_not_connected_to() -> None:
    with Receiver() as receiver:
        answer = send(
            f"https://rebind.example.org:{receiver.port}/", allow_private=False, resolve=lambda *_: ["127.0.0.1"]
        )
    assert answer == Posted(error=REFUSED)
    assert receiver.calls == []


def test_a_signature_is_that_of_standard_webhooks() -> None:
    # the example of its specification
    known = signature(
        delivery_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=1614265330,
        body=b'{"test": 2432232314}',
        secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    )
    assert known == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_during_a_rotation_both_secrets_sign_and_a_secret_is_not_its_salt(tmp_path: Path) -> None:
    new, old = secret_of("key", "a"), secret_of("key", "b")
    assert new != old != secret_of("another key", "b")
    assert "a" * 32 not in secret_of("key", "a" * 32)
    sent = headers(delivery_id="msg_1", at=7, body=BODY, secrets=[new, old])
    assert sent["webhook-signature"].split() == [
        signature(delivery_id="msg_1", at=7, body=BODY, secret=secret) for secret in (new, old)
    ]
