"""The hosts of a ``postgresql:`` URL, and the options of sockets and certificates."""

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from forge_jobs.errors import InvalidInput
from forge_jobs.storage.sql.postgres.driver.hosts import ANY, PRIMARY, READ_WRITE, Address, Hosts
from forge_jobs.storage.urls import choice, count, flag

_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_VERIFYING = ("verify-ca", "verify-full")
SYSTEM = "system"
"""In place of a file: the authorities that this machine trusts."""

_ONLY_READ = ("standby", "prefer-standby", "read-only")
_MOST = 32_767
"""The most that the system takes for times and counts of a socket."""

_HOST = re.compile(r"(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\[\]]*))(?::(?P<port>\d+))?")
_EXAMPLE = "give postgresql://user:password@host:5432/database"


@dataclass(frozen=True)
class Sockets:
    """TCP keepalive settings, so that a lost connection is noticed. 0: the system's default.

    :param idle: seconds of silence after which the system probes the other side
    :param interval: seconds between two probes
    :param count: how many probes may stay unanswered
    :param unanswered_ms: how long sent data may stay without an acknowledgement
    """

    keeps_alive: bool = True
    idle: int = 20
    interval: int = 5
    count: int = 3
    unanswered_ms: int = 30_000


def hosts_of(netloc: str, options: Mapping[str, str]) -> Hosts:
    """Return the servers of the URL, and the role they must have.

    :raises InvalidInput: the list cannot be read, or asks for servers that take no writes
    """
    named = unquote(netloc.rpartition("@")[2]) or options.get("host", "")
    ports = options.get("port", "").split(",")
    hosts = named.split(",")
    if len(ports) not in (1, len(hosts)):
        problem = f"names {len(hosts)} hosts and {len(ports)} ports"
        raise InvalidInput("url", problem, "give one port, or one for each host")
    if len(ports) < len(hosts):
        ports *= len(hosts)
    # Where a service or the environment names the host, the driver finds the host.
    addresses = [_address(host, port) for host, port in zip(hosts, ports, strict=True)]
    several = len(addresses) > 1
    return Hosts(addresses, _wanted(options, several))


def direct_of(value: str | None, wanted: str) -> Hosts | None:
    """Return the servers past a pooler, see :func:`hosts_of`."""
    if value is None:
        return None
    addresses = [_address(each, "") for each in value.split(",")]
    if not all(each.host and each.port for each in addresses):
        problem = "`direct` is not host:port"
        raise InvalidInput("url", problem, "give direct=host:port, or several with commas between")
    return Hosts(addresses, READ_WRITE if len(addresses) > 1 and wanted == ANY else wanted)


def _address(named: str, port: str) -> Address:
    if named.startswith("/"):
        return Address(named, _port(port))
    found = _HOST.fullmatch(named)
    if found is None:
        raise InvalidInput("url", "cannot be read", _EXAMPLE)
    return Address(found["ipv6"] or found["host"] or None, _port(found["port"] or port))


def _port(digits: str) -> int | None:
    if not digits:
        return None
    if not digits.isdecimal() or not 0 < int(digits[:6]) < 2**16:
        raise InvalidInput("url", "has a bad port", "give a number from 1 to 65535")
    return int(digits)


def _wanted(options: Mapping[str, str], several: bool) -> str:
    name = "target_session_attrs"
    choices = (ANY, READ_WRITE, PRIMARY, *_ONLY_READ)
    wanted = choice(options, name, choices, READ_WRITE if several else ANY)
    if wanted in _ONLY_READ:
        problem = f"has {name}={wanted}, and a store writes"
        raise InvalidInput("url", problem, f"give {name}={READ_WRITE}")
    return wanted


def check_tls(options: Mapping[str, str]) -> None:
    """Check the options of encryption.

    :raises InvalidInput: the driver cannot do what the options ask for. The text says what to give
    """
    mode = choice(options, "sslmode", _MODES, "prefer")
    root = options.get("sslrootcert")
    if root == SYSTEM and "sslmode" in options and mode != "verify-full":
        problem = f"has sslrootcert=system with sslmode={mode}, which anybody's certificate meets"
        raise InvalidInput("url", problem, "give sslmode=verify-full")
    for name in _FILES:
        if name in options and options[name] != SYSTEM and not Path(options[name]).is_file():
            raise InvalidInput(
                "url", f"has an option {name} that names no file", "give the path of a file"
            )
    if mode in _VERIFYING and root is None and not _has_own_authority():
        problem = f"has sslmode={mode} and no authority to verify the server's certificate by"
        fix = "add sslrootcert=FILE, or sslrootcert=system for those that this machine trusts"
        raise InvalidInput("url", problem, fix)
    if choice(options, "channel_binding", ("disable", "prefer", "require"), "prefer") == "require":
        raise InvalidInput(
            "url",
            "has channel_binding=require, which the driver asyncpg cannot do",
            "give channel_binding=prefer, and sslmode=verify-full with sslrootcert=system (or the"
            " provider's file), so that no other server can stand between",
        )
    # The driver knows no GSSAPI encryption. With ``prefer`` a client may go without.
    choice(options, "gssencmode", ("disable", "prefer"), "disable")


def _has_own_authority() -> bool:
    try:
        return (
            bool(os.environ.get("PGSSLROOTCERT"))
            or (Path.home() / ".postgresql" / "root.crt").is_file()
        )
    except RuntimeError:  # the process has no home folder
        return False


def trusted_by_system(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return a context that trusts the machine's authorities, when the URL asks for them."""
    if options.get("sslrootcert") != SYSTEM:
        return None
    context = ssl.create_default_context()
    context.set_alpn_protocols(["postgresql"])
    if "sslcert" in options:
        password = options.get("sslpassword", "")
        try:
            context.load_cert_chain(options["sslcert"], options.get("sslkey"), lambda: password)
        except OSError:
            problem = "has an sslcert, sslkey or sslpassword that do not belong together"
            raise InvalidInput("url", problem, "correct them") from None
    return context


def sockets_of(options: Mapping[str, str], timeout: float) -> Sockets:
    """Return how long a silent connection counts as alive, by libpq's options.

    :param timeout: the time limit of a call, which no shorter silence may cut off
    """
    default = Sockets()
    return Sockets(
        keeps_alive=flag(options, "keepalives", True),
        idle=count(options, "keepalives_idle", default.idle, 0, _MOST),
        interval=count(options, "keepalives_interval", default.interval, 0, _MOST),
        count=count(options, "keepalives_count", default.count, 0, _MOST),
        unanswered_ms=count(
            options,
            "tcp_user_timeout",
            max(default.unanswered_ms, int(timeout * 1000)),
            0,
            1000 * _MOST,
        ),
    )


def connect_limit(options: Mapping[str, str], timeout: float) -> float:
    """Return the seconds that an attempt to connect to one host takes at most."""
    asked = count(options, "connect_timeout", 0, 0, 3600)
    return min(float(asked or 10), timeout)
