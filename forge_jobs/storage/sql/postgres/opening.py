"""``postgresql:`` URLs."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from forge_jobs.errors import InvalidInput
from forge_jobs.storage.sql.postgres.connections import PostgresOptions
from forge_jobs.storage.sql.postgres.store import PostgresAddress
from forge_jobs.storage.urls import choice, count, flag, options_of, seconds

_OWN = ("schema", "pool_size", "timeout", "pgbouncer", "wake", "direct")
_DRIVERS = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslcrl",
    "sslpassword",
    "host",
    "port",
    "passfile",
    "service",
    "application_name",
    "target_session_attrs",
)
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_LONGEST_NAME = 63


def parse(url: str) -> PostgresAddress:
    """The database and the options that the URL names.

    :raises InvalidInput: the URL is wrong (field ``url``)
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018
    except ValueError:
        raise InvalidInput(
            "url", "cannot be read", "give postgresql://user:password@host:5432/database"
        ) from None
    options = options_of(parts.query, (*_OWN, *_DRIVERS))
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise InvalidInput(
            "url", "names no database", "give postgresql://user:password@host:5432/database"
        )
    schema = options.get("schema", "public")
    if not 1 <= len(schema.encode()) <= _LONGEST_NAME or "\0" in schema:
        raise InvalidInput("url", "has a schema that is no name", "give 1 to 63 bytes")
    if schema.startswith("pg_"):
        raise InvalidInput("url", "has a schema that begins with pg_", "give another name")
    _check_tls(options)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name in _DRIVERS]
    dsn = parts._replace(scheme="postgresql", query=urlencode(kept), fragment="").geturl()
    return PostgresAddress(
        PostgresOptions(
            dsn=dsn,
            shown=database if schema == "public" else f"{database} (schema {schema})",
            server=f"the database at {_address(parts.netloc, options)}",
            schema=schema,
            pool_size=count(options, "pool_size", 10, 1, 1000),
            timeout=seconds(options, "timeout", 5),
            pooled=flag(options, "pgbouncer", False),
            wakes=choice(options, "wake", ("listen", "poll"), "listen") == "listen",
            direct=_direct(options.get("direct")),
        )
    )


def _address(netloc: str, options: Mapping[str, str]) -> str:
    """Host and port as people know them; several, when the URL names several."""
    hosts = netloc.rpartition("@")[2] or options.get("host", "")
    port = options.get("port", "5432")
    found = []
    for host in unquote(hosts).split(","):
        is_socket = host.startswith("/")
        has_port = host.rpartition("]")[2].count(":") == 1
        found.append(host if is_socket or has_port else f"{host or 'localhost'}:{port}")
    return ", ".join(found)


def _check_tls(options: Mapping[str, str]) -> None:
    choice(options, "sslmode", _MODES, "prefer")
    for name in _FILES:
        if name in options and not Path(options[name]).is_file():
            raise InvalidInput("url", f"has an option {name} that names no file", "correct it")


def _direct(value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InvalidInput("url", "has a direct address that is none", "give direct=host:port")
    return host, int(port)
