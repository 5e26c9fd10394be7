"""Secrets in files: reading a `…_FILE`, and the secret key that a first start makes."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

MIN_KEY_CHARS = 50  # what Django's own deployment check asks for


def read_secret(path: Path) -> str:
    """Read the secret in `path`, without the newline that editors leave. Raise OSError or ValueError."""
    value = path.read_text(encoding="utf-8").rstrip("\r\n")
    if not value:
        raise ValueError("the file is empty")
    return value


def keep_secret_key(path: Path) -> str:
    """Read the secret key in `path`, or make one there, mode 0600. Raise OSError or ValueError.

    The key is written whole under another name first, and linked to its own: of processes that start together the first
    link wins, and no one ever reads a key that is half written.
    """
    if not path.exists():
        _offer(path, secrets.token_urlsafe(64))
    key = read_secret(path)
    if len(key) < MIN_KEY_CHARS:
        raise ValueError("the key in the file is too short")
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    return key


def _offer(path: Path, key: str) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first: its key is the key
            os.link(draft, path)
    finally:
        draft.unlink()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
