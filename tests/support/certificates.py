"""A certificate authority of the tests' own, made with openssl, and a server's certificate that it has signed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """Files: what a client trusts, and the server's key (PKCS 8) followed by its certificate, in PEM."""

    ca: Path
    server: Path

    @classmethod
    def make(cls, place: Path) -> Certificates:
        """For a server on loopback. A second place has another authority of the same name."""
        place.mkdir(parents=True, exist_ok=True)
        ca, ca_key = place / "ca.pem", place / "ca.key"
        subject = ("-subj", "/CN=authority of the tests")
        _openssl("req", "-x509", *_NEW_KEY, *subject, "-keyout", ca_key, "-out", ca)
        key, signed, server = place / "server.key", place / "server.crt", place / "server.pem"
        names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        by_ca = ("-CA", ca, "-CAkey", ca_key)
        _openssl("req", "-x509", *_NEW_KEY, *by_ca, *names, "-keyout", key, "-out", signed)
        server.write_text(key.read_text() + signed.read_text())
        return cls(ca=ca, server=server)


def _openssl(*argv: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, argv)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
