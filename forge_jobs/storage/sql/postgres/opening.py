"""``postgresql:`` URLs."""

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from forge_jobs.errors import InvalidInput
from forge_jobs.storage.sql.postgres.driver.address import (
    SYSTEM,
    check_tls,
    connect_limit,
    direct_of,
    hosts_of,
    sockets_of,
    trusted_by_system,
)
from forge_jobs.storage.sql.postgres.driver.connecting import PostgresOptions
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
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "passfile",
    "service",
    "application_name",
    "options",
)
"""Options that the driver gets unchanged."""

_LIBPQ = (
    "host",
    "port",
    "target_session_attrs",
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "channel_binding",
    "gssencmode",
)
"""Options that the driver does not know, or reads otherwise than libpq."""

_LONGEST_NAME = 63


def parse(url: str) -> PostgresAddress:
    """Return the database and the options that the URL names.

    :raises InvalidInput: the URL is wrong (field ``url``)
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidInput(
            "url", "cannot be read", "give postgresql://user:password@host:5432/database"
        ) from None
    options = options_of(parts.query, (*_OWN, *_DRIVERS, *_LIBPQ))
    hosts = hosts_of(parts.netloc, options)
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
    check_tls(options)
    timeout = seconds(options, "timeout", 5)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if _is_drivers(name, value)]
    # The driver gets one host at a time.
    login = parts.netloc.rpartition("@")[:2]
    dsn = parts._replace(
        scheme="postgresql", netloc="".join(login), query=urlencode(kept), fragment=""
    ).geturl()
    return PostgresAddress(
        PostgresOptions(
            dsn=dsn,
            hosts=hosts,
            shown=database if schema == "public" else f"{database} (schema {schema})",
            server=f"the database at {', '.join(map(str, hosts.addresses))}",
            schema=schema,
            pool_size=count(options, "pool_size", 10, 1, 1000),
            timeout=timeout,
            connect_s=connect_limit(options, timeout),
            sockets=sockets_of(options, timeout),
            tls=trusted_by_system(options),
            pooled=flag(options, "pgbouncer", False),
            wakes=choice(options, "wake", ("listen", "poll"), "listen") == "listen",
            direct=direct_of(options.get("direct"), hosts.wanted),
            program=options.get("application_name", "forge_jobs"),
        )
    )


def _is_drivers(name: str, value: str) -> bool:
    return name in _DRIVERS and (name, value) != ("sslrootcert", SYSTEM)
