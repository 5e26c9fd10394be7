"""What may be called, whatever a name says and whatever it resolves to."""

from __future__ import annotations

import pytest

from dispatch.webhooks.addresses import AddressRefused, check_url, is_under, may_be_called, resolved


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34"])
def test_public_addresses_may_be_called(address: str) -> None:
    assert may_be_called(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "192.0.2.1"),
        *("169.254.169.254", "224.0.0.1", "239.1.1.1", "255.255.255.255", "240.0.0.1", "198.18.0.1"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::"),
    ],
)
def test_private_loopback_link_local_and_wrapped_addresses_may_not(address: str) -> None:
    assert not may_be_called(address)


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.org/x", "ftp://example.org/", "https://", "https:///x", "https://me@example.org/"),
        *("https://me:pw@example.org/", "https://example.org/#x", "https://example.org:99999/", "https://a b.org/"),
        *("https://example.org/a/../b", "https://example.org/%2e%2E/b", "https://exämple.org/", "https://x\n.org/"),
        *("https://example.org\\@evil.org/", "https://example.org:0/", f"https://example.org/{'x' * 2000}"),
    ],
)
def test_what_is_no_plain_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        check_url(url)


@pytest.mark.parametrize(
    ("base", "url", "under"),
    [
        ("https://a.org/h", "https://a.org/h", True),
        ("https://a.org/h", "https://a.org/h/x?y=1", True),
        ("https://a.org/h", "https://a.org/h?y=1", True),
        ("https://a.org/", "https://a.org/x", True),
        ("https://a.org", "https://a.org/x", True),
        ("https://a.org", "https://a.org.evil.org/", False),
        ("https://a.org", "https://a.org:444/", False),
        ("https://a.org/h", "https://a.org/hh", False),
        ("https://a.org/h", "http://a.org/h", False),
        ("https://a.org/h?k=1", "https://a.org/h?k=1?", False),
    ],
)
def test_an_address_lies_under_an_endpoint_by_whole_parts(base: str, url: str, under: bool) -> None:
    assert is_under(base, url) is under


def test_one_bad_address_among_several_refuses_the_name() -> None:
    parts = check_url("https://rebind.example.org/h")
    with pytest.raises(AddressRefused):
        resolved(parts, allow_private=False, resolve=lambda *_: ["93.184.216.34", "127.0.0.1"])
    assert resolved(parts, allow_private=True, resolve=lambda *_: ["127.0.0.1"]) == [("127.0.0.1", 443)]
    assert resolved(parts, allow_private=False, resolve=lambda *_: ["93.184.216.34"]) == [("93.184.216.34", 443)]


def test_a_number_in_disguise_is_looked_up_like_a_name_and_refused_for_what_it_is() -> None:
    for url in ("http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://[::1]/", "http://localhost/"):
        with pytest.raises((AddressRefused, OSError)):
            resolved(check_url(url), allow_private=False)
