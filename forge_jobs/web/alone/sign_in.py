"""Sign-in: by password, by token, or by the header of a trusted proxy."""

import base64
import binascii
import hmac
import ipaddress
import os
import secrets
from collections import OrderedDict, deque
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct
from starlette.requests import Request

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import ConfigError
from forge_jobs.operating.access import Access, Actor
from forge_jobs.reports import reporter
from forge_jobs.web.alone.users import UNKNOWN, User, matches, read_users
from forge_jobs.web.problems import Refused

logger = reporter(__name__)

FAILURES = 10
"""Of one address or one name, within a minute. Further ones are not looked at."""

_MINUTE = 60.0
_REMEMBERED = 1_000
"""Sign-ins, and addresses with failures, that are remembered at most."""

_HASHES_AT_ONCE = 2


class Proxy(Struct, frozen=True):
    """A proxy that has signed the caller in.

    :param header: holds the name of the caller
    :param peers: addresses or networks from which the header is believed
    """

    header: str
    peers: tuple[str, ...]

    def user_of(self, request: Request) -> str | None:
        """Return the name that the proxy gives. None: the request is from another address."""
        if request.client is None or not _is_within(request.client.host, self.peers):
            return None
        given = request.headers.getlist(self.header)
        return given[0] if len(given) == 1 and given[0] else None


def _is_within(address: str, networks: Sequence[str]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
        return any(parsed in ipaddress.ip_network(each, strict=False) for each in networks)
    except ValueError:
        return False


class SignIn:
    """Answers :data:`~forge_jobs.web.access.Authorize` from a file of users.

    :param users: the file, read again when changed. None: only the proxy signs callers in
    """

    def __init__(
        self, users: Path | None, proxy: Proxy | None = None, *, clock: Clock | None = None
    ) -> None:
        self._file = _UserFile(users) if users else None
        self._proxy = proxy
        self._failures = _Failures(clock or SystemClock())
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._hashing: anyio.CapacityLimiter | None = None

    async def __call__(self, request: Request) -> Actor:
        """Return the caller.

        :raises Refused: 401 without valid credentials, 429 after too many failures
        """
        if self._proxy is not None:
            name = self._proxy.user_of(request)
            if name is not None:
                user = self._file.user(name) if self._file else None
                return _actor(user or User(name=name))
        return _actor(await self._signed_in(request))

    async def _signed_in(self, request: Request) -> User:
        given = _credentials(request.headers.get("authorization", ""))
        if given is None or self._file is None:
            raise _unauthorized("no credentials")
        name, secret, part = given
        user = self._file.user(name)
        stored: str = getattr(user, part) if user else ""
        proof = hmac.digest(
            self._key, f"{part}\0{name}\0{secret}".encode("utf-8", "replace"), "sha256"
        )
        if stored and hmac.compare_digest(self._known.get(proof, ""), stored):
            assert user is not None
            return user
        callers = (f"from {request.client.host if request.client else ''}", f"as {name[:200]}")
        self._failures.check(callers)
        self._hashing = self._hashing or anyio.CapacityLimiter(_HASHES_AT_ONCE)
        fits = await anyio.to_thread.run_sync(
            matches, secret, stored or UNKNOWN, limiter=self._hashing
        )
        if not fits or user is None:
            self._failures.add(callers)
            logger.warning(
                "a sign-in %s failed; further failures within a minute are refused", callers[0]
            )
            raise _unauthorized("wrong credentials")
        self._known[proof] = stored
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return user


def _actor(user: User) -> Actor:
    access = Access(
        actions=frozenset(user.actions),
        queues=None if user.queues is None else frozenset(user.queues),
        payloads=user.payloads,
    )
    return Actor(name=user.name[:100], surface="web", access=access)


def _credentials(header: str) -> tuple[str, str, str] | None:
    """Return name, secret, and the field of the user that has the hash of the secret."""
    scheme, _, rest = header.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        name, dot, secret = rest.partition(".")
        return (name, secret, "token") if dot and name and secret else None
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, secret = base64.b64decode(rest, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, secret, "password") if colon else None


def _unauthorized(problem: str) -> Refused:
    return Refused(
        401,
        "not-signed-in",
        problem,
        "sign in, or send Authorization: Bearer NAME.SECRET",
        field="Authorization",
        headers={"WWW-Authenticate": 'Basic realm="forge-jobs", charset="UTF-8"'},
    )


class _Failures:
    """Counts failures by address and by name, over a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_caller: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, callers: Sequence[str]) -> None:
        now = self._clock.elapsed()
        for caller in callers:
            failures = self._by_caller.get(caller, ())
            recent = [at for at in failures if at > now - _MINUTE]
            if len(recent) >= FAILURES:
                wait = max(1, int(recent[0] + _MINUTE - now) + 1)
                raise Refused(
                    429,
                    "too-many-failures",
                    "too many sign-ins have failed",
                    f"wait {wait} s",
                    field="Authorization",
                    headers={"Retry-After": str(wait)},
                )

    def add(self, callers: Sequence[str]) -> None:
        for caller in callers:
            times = self._by_caller.setdefault(caller, deque(maxlen=FAILURES))
            times.append(self._clock.elapsed())
            self._by_caller.move_to_end(caller)
        while len(self._by_caller) > _REMEMBERED:
            self._by_caller.popitem(last=False)


class _UserFile:
    """The users of the file as the file is now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._now()
        self._users = {user.name: user for user in read_users(path).users}

    def user(self, name: str) -> User | None:
        stamp = self._now()
        if stamp != self._stamp:
            try:
                self._users = {user.name: user for user in read_users(self._path).users}
            except ConfigError as error:
                # Fails closed: a file that is half written or gone signs no caller in.
                self._users = {}
                logger.warning(
                    "no caller can sign in by password or token until the file is mended: %s", error
                )
            self._stamp = stamp
        return self._users.get(name)

    def _now(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
