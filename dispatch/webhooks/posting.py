"""One POST to an address that was looked at first. No redirect is followed, no proxy asked, no cookie kept."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from dispatch.webhooks.addresses import Address, AddressRefused, Resolve, check_url, resolved

REFUSED = "address refused"


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
        sock = socket.create_connection(self._address, self.timeout)
        self.sock = sock if self._context is None else self._context.wrap_socket(sock, server_hostname=self.host)


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    allow_private: bool,
    resolve: Resolve | None = None,
) -> Posted:
    """Send it; never raises for what the receiver or the network does. All of it takes about `timeout_s` at most."""
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
    answer = Posted(error="connection failed")
    for address in addresses[:2]:  # a host's first address of each family
        connection = _Connection(parts.hostname or "", address, timeout=timeout_s, context=context)
        answer = _exchange(connection, target, body, sent, timeout_s)
        if answer.error != "connection failed":
            break
    return answer


def _exchange(
    connection: http.client.HTTPConnection, target: str, body: bytes, headers: Mapping[str, str], timeout_s: float
) -> Posted:
    over = threading.Event()
    # a receiver that answers a byte now and then never meets the timeout of a single read
    watchdog = threading.Timer(timeout_s, _break_off, (connection, over))
    watchdog.daemon = True
    try:
        connection.connect()
        watchdog.start()
        connection.putrequest("POST", target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        status = connection.getresponse().status
        return Posted(error="timeout") if over.is_set() else Posted(status=status)
    except TimeoutError:
        return Posted(error="timeout")
    except ssl.SSLError:
        return Posted(error="TLS failed")
    except OSError:
        return Posted(error="timeout" if over.is_set() else "connection failed")
    except (http.client.HTTPException, ValueError):
        return Posted(error="timeout" if over.is_set() else "no HTTP answer")
    finally:
        watchdog.cancel()
        connection.close()


def _break_off(connection: http.client.HTTPConnection, over: threading.Event) -> None:
    over.set()
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
