"""The shapes that a setting's text can have. A refusal ends a sentence that begins with the variable's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated
from urllib.parse import urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr


def _split(value: object) -> object:
    """`a, b` → ("a", "b"); an empty text is an empty list, an empty item is refused."""
    if not isinstance(value, str):
        return value
    items = tuple(item.strip() for item in value.split(",")) if value.strip() else ()
    if "" in items:
        raise ValueError("has an empty item between its commas")
    return items


def _module(name: str) -> str:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError("must be Python module names separated by commas")
    return name


def _executable(name: str) -> str:
    if "\0" in name or ("/" in name and not name.startswith("/")):
        raise ValueError("must be command names or absolute paths separated by commas")
    return name


def _endpoint(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme == "tls" and parts.hostname and parts.port and value == f"tls://{parts.netloc}"
    except ValueError:
        good = False
    if not good or "@" in value:
        raise ValueError("must be tls://host:port, several separated by commas")
    return value


def _bootstrap(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536 or "@" in host or "/" in host:
        raise ValueError("must be host:port, several separated by commas")
    return value


def _postgres_uri(value: SecretStr) -> SecretStr:
    """Refuse what libpq cannot read, in words of our own: libpq's would quote the password."""
    uri = value.get_secret_value()
    if not uri.startswith(("postgresql://", "postgres://")):
        raise ValueError("must be a postgresql:// address")
    try:
        parts = conninfo_to_dict(uri)
    except ProgrammingError:
        raise ValueError("is not an address that PostgreSQL's client library can read") from None
    if not (parts.get("dbname") or parts.get("service")):
        raise ValueError("names no database")
    return value


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"names {path.absolute()}, which is no file")
    return path.absolute()


Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
DaysOrNone = Annotated[float, Field(ge=0, le=36_500)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Secret = Annotated[SecretStr, Field(min_length=1)]
PostgresURI = Annotated[SecretStr, AfterValidator(_postgres_uri)]
ReadableFile = Annotated[Path, AfterValidator(_file)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Modules = Annotated[tuple[Annotated[str, AfterValidator(_module)], ...], BeforeValidator(_split)]
Executables = Annotated[tuple[Annotated[str, AfterValidator(_executable)], ...], BeforeValidator(_split)]
Servers = Annotated[tuple[Annotated[str, AfterValidator(_bootstrap)], ...], BeforeValidator(_split)]
Endpoints = Annotated[tuple[Annotated[str, AfterValidator(_endpoint)], ...], BeforeValidator(_split)]
SecretOptions = Annotated[Mapping[str, SecretStr], AfterValidator(MappingProxyType), PlainSerializer(dict)]
