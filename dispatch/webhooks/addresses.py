"""Which addresses may be called: by their text, and by what their names resolve to. No database, no request."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

MAX_URL = 2000
_NAT64 = ip_network("64:ff9b::/96")
RIGHT = "an https:// address without user, password or fragment, of at most 2000 characters"

Address = tuple[str, int]
Resolve = Callable[[str, int], Iterable[str]]


class AddressRefused(Exception):
    """The name leads to an address that must not be called."""


def check_url(url: str) -> SplitResult:
    """Its parts; raise ValueError for what can never be called. Plain http is left to the setting."""
    right = f"must be {RIGHT}"
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError(right)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(right) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or "#" in url or "@" in parts.netloc:
        raise ValueError(right)
    if any(part.lower().replace("%2e", ".") in (".", "..") for part in parts.path.split("/")):
        raise ValueError("must not have . or .. as a part of its path")
    return parts


def is_under(base: str, url: str) -> bool:
    """Whether `url` is `base`, or lies below it, or adds a query to it."""
    if url == base or url.startswith(f"{base.rstrip('/')}/"):
        return True
    return "?" not in base and url.startswith(f"{base}?")


def may_be_called(address: str) -> bool:
    """Whether it is one of the public internet: no loopback, private, link-local (metadata), multicast or reserved."""
    known: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    return all(one.is_global and not one.is_multicast for one in _meant(known))


def _meant(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """The address, and those of IPv4 that are wrapped in it."""
    if isinstance(address, IPv4Address):
        return [address]
    wrapped: list[IPv4Address | None] = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        wrapped.append(IPv4Address(int(address) & 0xFFFFFFFF))
    inner: list[IPv4Address | IPv6Address] = [one for one in wrapped if one is not None]
    # a mapped address is reserved as such; what it stands for is what counts
    return inner if address.ipv4_mapped is not None or address in _NAT64 else [address, *inner]


def resolved(parts: SplitResult, *, allow_private: bool, resolve: Resolve | None = None) -> list[Address]:
    """Where to connect, resolved once: whoever connects to these has not asked again. Raises OSError, AddressRefused.

    One address that must not be called refuses the whole name.
    """
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = list((resolve or _resolve)(parts.hostname or "", port))
    if not found:
        raise OSError("the name has no address")
    if not allow_private and not all(map(may_be_called, found)):
        raise AddressRefused
    return [(address, port) for address in found]


def _resolve(host: str, port: int) -> list[str]:
    try:
        rows: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError("the name cannot be looked up") from None
    return list(dict.fromkeys(str(row[4][0]) for row in rows))
