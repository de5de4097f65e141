"""The parts of a ``redis:`` URL."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from forge_jobs.errors import InvalidInput
from forge_jobs.storage.redis.keys import Keys
from forge_jobs.storage.urls import choice, count, flag, options_of, seconds

_TLS = ("ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname", "ssl_certfile", "ssl_keyfile")
_SENTINEL = ("sentinel_username", "sentinel_password")
_OPTIONS = ("prefix", "timeout", "pool_size", "wake", "wait_replicas", "wait_timeout")
_PORTS = {"": 6379, "sentinel": 26379, "cluster": 6379}

Host = tuple[str, int]


@dataclass(frozen=True)
class Tls:
    """How servers prove who they are, and this program to them.

    :param ca_certs: file of the authorities to trust. None: the system's
    :param verify: False: any certificate will do
    :param certfile: this program's certificate, for servers that ask for one
    """

    ca_certs: str | None = None
    verify: bool = True
    check_hostname: bool = True
    certfile: str | None = None
    keyfile: str | None = None


@dataclass(frozen=True)
class Login:
    """A user and a password. Neither: none is asked for."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RedisUrl:
    """A checked URL.

    :param kind: '' for one server, ``sentinel`` or ``cluster``
    :param service: what the sentinels call the servers
    :param pool_size: connections to one server, at most
    :param timeout: seconds after which any call gives up
    :param wakes: False: no pub/sub connection, only polling
    :param wait_replicas: how many replicas each write waits for, ``wait_timeout`` seconds at most
    """

    kind: str
    hosts: tuple[Host, ...] = field(repr=False)
    service: str
    database: int
    login: Login
    sentinel_login: Login
    tls: Tls | None
    keys: Keys
    timeout: float
    pool_size: int
    wakes: bool
    wait_replicas: int
    wait_timeout: float

    @property
    def attempt(self) -> float:
        """Seconds for a connection to one host, so that others have their turn within a call."""
        return self.timeout / 4 if self.kind else self.timeout

    @property
    def server(self) -> str:
        """The words for the servers when they give no answer, with hosts and ports."""
        hosts = in_words(self.hosts)
        if self.kind == "sentinel":
            return f"the primary that the sentinels at {hosts} know"
        return f"the cluster at {hosts}" if self.kind == "cluster" else f"the server at {hosts}"


def in_words(hosts: Sequence[Host]) -> str:
    """Hosts and ports as people write them."""
    return ", ".join(
        f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name, port in hosts
    )


def parse_url(url: str) -> RedisUrl:
    """Read a URL.

    :raises InvalidInput: the URL is wrong (field ``url``). The text shows no part of the address
    """
    scheme, _, rest = url.partition("://")
    location, _, query = rest.partition("?")
    base, _, kind = scheme.partition("+")
    has_tls = base == "rediss"
    known = (*_OPTIONS, *(_TLS if has_tls else ()), *(_SENTINEL if kind == "sentinel" else ()))
    options = options_of(query, known)
    address, _, path = location.partition("/")
    credentials, _, hosts = address.rpartition("@")
    service, database = _path(kind, path)
    return RedisUrl(
        kind=kind,
        hosts=_hosts(hosts, _PORTS[kind], several=kind != ""),
        service=service,
        database=database,
        login=_login(credentials),
        sentinel_login=Login(options.get("sentinel_username"), options.get("sentinel_password")),
        tls=_tls(options) if has_tls else None,
        keys=Keys(options.get("prefix", "forge"), database),
        timeout=seconds(options, "timeout", 5),
        pool_size=count(options, "pool_size", 20, 1, 1_000),
        wakes=choice(options, "wake", ("publish", "poll"), "publish") == "publish",
        wait_replicas=count(options, "wait_replicas", 0, 0, 100),
        wait_timeout=seconds(options, "wait_timeout", 1),
    )


def _login(text: str) -> Login:
    username, separator, password = text.partition(":")
    if text and not password:
        raise InvalidInput(
            "url",
            "has a user without a password" if not separator else "has an empty password",
            "give redis://user:password@host, or redis://:password@host without a user",
        )
    return Login(unquote(username) or None, unquote(password) or None)


def _hosts(text: str, default_port: int, *, several: bool) -> tuple[Host, ...]:
    parts = text.split(",")
    if len(parts) > 1 and not several:
        raise InvalidInput(
            "url",
            "names several servers",
            "give redis+cluster:// for a cluster, redis+sentinel:// for sentinels",
        )
    return tuple(_host(part, default_port) for part in parts)


def _host(text: str, default_port: int) -> Host:
    # An IPv6 address stands in brackets.
    found = re.fullmatch(
        r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:\[\]]+))(?::(?P<port>\d{1,5}))?", text
    )
    if found is None or not 0 < int(found["port"] or default_port) < 65536:
        raise InvalidInput(
            "url", "names no server, or a port out of range", "give for example redis://host:6379/0"
        )
    return found["v6"] or unquote(found["name"]), int(found["port"] or default_port)


def _path(kind: str, path: str) -> tuple[str, int]:
    """The service's name and the number of the database."""
    service = ""
    if kind == "sentinel":
        service, _, path = path.partition("/")
        if not service:
            raise InvalidInput(
                "url", "names no service", "give redis+sentinel://host:26379/service/0"
            )
    if not re.fullmatch(r"\d{0,5}", path):
        raise InvalidInput("url", "has no number as its database", "give for example /0")
    number = int(path or 0)
    if kind == "cluster" and number:
        raise InvalidInput("url", "names a database of a cluster", "give /0, the only one")
    return unquote(service), number


def _tls(options: Mapping[str, str]) -> Tls:
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        if name in options and not os.access(options[name], os.R_OK):
            raise InvalidInput(
                "url",
                f"names a file in {name} that this user cannot read",
                "give the path of a file",
            )
    verify = choice(options, "ssl_cert_reqs", ("required", "none"), "required") == "required"
    return Tls(
        ca_certs=options.get("ssl_ca_certs"),
        verify=verify,
        check_hostname=flag(options, "ssl_check_hostname", verify) and verify,
        certfile=options.get("ssl_certfile"),
        keyfile=options.get("ssl_keyfile"),
    )
