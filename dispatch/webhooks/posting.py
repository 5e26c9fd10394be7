"""One POST to an address that was looked at first. No redirect is followed, no proxy asked, no cookie kept."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from dispatch.webhooks.addresses import Address, AddressRefused, Resolve, check_url, resolved

REFUSED = "address refused"
TIMEOUT = "timeout"
FAILED = "connection failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Posted:
    """`status` of the answer, or None and a label that says why there is none."""

    status: int | None = None
    error: str = ""

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """The receiver says that it wants no more."""
        return self.status == 410


class _Connection(http.client.HTTPConnection):
    """Connects to the address that it is told, whatever its host's name resolves to by now."""

    def __init__(self, host: str, address: Address, *, timeout: float, context: ssl.SSLContext | None) -> None:
        super().__init__(host, address[1], timeout=timeout)
        self._address, self._context = address, context

    def connect(self) -> None:
        self.sock = socket.create_connection(self._address, self.timeout)
        if self._context is not None:
            # what can be broken off from outside is there before the handshake begins
            self.sock = tls = self._context.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            tls.do_handshake()


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    allow_private: bool,
    resolve: Resolve | None = None,
) -> Posted:
    """Send it; never raises for what the receiver or the network does.

    All of it takes `timeout_s` at most, but for the look-up of the name.
    """
    try:
        parts = check_url(url)
        if parts.scheme != "https" and not allow_private:
            return Posted(error=REFUSED)
        addresses = resolved(parts, allow_private=allow_private, resolve=resolve)
    except (AddressRefused, ValueError):
        return Posted(error=REFUSED)
    except OSError:
        return Posted(error="name not resolved")
    context = ssl.create_default_context() if parts.scheme == "https" else None
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    sent = {"Host": parts.netloc, "Content-Length": str(len(body)), "Connection": "close", **headers}
    answer, end = Posted(error=FAILED), time.monotonic() + timeout_s
    for address in addresses:
        left = end - time.monotonic()
        if answer.error != FAILED or left <= 0:
            break
        connection = _Connection(parts.hostname or "", address, timeout=left, context=context)
        answer = _exchange(connection, target, body, sent, left)
    return answer


def _exchange(
    connection: http.client.HTTPConnection, target: str, body: bytes, headers: Mapping[str, str], timeout_s: float
) -> Posted:
    over = threading.Event()
    # a receiver that sends a byte now and then never meets the timeout of a single read
    watchdog = threading.Timer(timeout_s, _break_off, (connection, over))
    watchdog.daemon = True
    try:
        watchdog.start()
        connection.connect()
        connection.putrequest("POST", target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        status = connection.getresponse().status
        return Posted(error=TIMEOUT) if over.is_set() else Posted(status=status)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Posted(error=TIMEOUT if over.is_set() else _label(error))
    finally:
        watchdog.cancel()
        connection.close()


def _label(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error, ssl.SSLError):
        return "TLS failed"
    return FAILED if isinstance(error, OSError) else "no HTTP answer"


def _break_off(connection: http.client.HTTPConnection, over: threading.Event) -> None:
    over.set()
    with contextlib.suppress(OSError, TypeError):
        socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # beneath TLS, which another thread is using
