"""``forge-jobs web``: the dashboard on uvicorn."""

import asyncio
import contextlib
import getpass
import ipaddress
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from msgspec import Struct
from starlette.requests import Request
from starlette.types import ASGIApp

from forge_jobs.errors import ConfigError, ForgeJobsError, Unavailable
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.reports import reporter
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.access import Authorize
from forge_jobs.web.alone.sign_in import Proxy, SignIn
from forge_jobs.web.application import dashboard
from forge_jobs.web.live.hub import end_streams

logger = reporter(__name__)

_TRY_AGAIN_AFTER = 1.0
_STOP_SECONDS = 1
"""How long a stop waits for requests that are under way. Live streams end by themselves."""


class WebOptions(Struct, frozen=True, kw_only=True):
    """The address of the dashboard, and its callers.

    :param users: the file of users, None for none
    :param allowed_hosts: names under which browsers reach this server
    :param redact: names of fields that are hidden
    :param proxy_header: holds the name of the caller, set by a proxy at ``proxy_from``
    """

    host: str = "127.0.0.1"
    port: int = 8642
    users: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    proxy_header: str = ""
    proxy_from: tuple[str, ...] = ()


def authorize_of(options: WebOptions) -> Authorize:
    """Return what signs callers in.

    Without users and proxy every caller of this machine is an operator, and the server must be at
    a loopback address.

    :raises ConfigError: other machines could call and no caller signs in, or an option is wrong
    """
    proxy = _proxy(options)
    if options.users is not None or proxy is not None:
        return SignIn(options.users, proxy)
    if not _is_loopback(options.host):
        raise ConfigError(
            f"--host {options.host} can be reached by other machines, and no caller signs in; "
            "give --users FILE (FORGE_WEB_USERS), made by forge-jobs web user add NAME, or "
            "--proxy-header, or serve at 127.0.0.1"
        )
    actor = Actor(name=_own_name(), surface="web", access=ALL)

    def local(_: Request) -> Actor:
        return actor

    return local


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "local"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _proxy(options: WebOptions) -> Proxy | None:
    if not options.proxy_header:
        return None
    if not options.proxy_from:
        raise ConfigError(
            "--proxy-header is given without --proxy-from; name the addresses of the proxy, as "
            "FORGE_WEB_PROXY_FROM=10.0.0.5"
        )
    for peer in options.proxy_from:
        try:
            ipaddress.ip_network(peer, strict=False)
        except ValueError:
            raise ConfigError(f"--proxy-from: {peer[:60]!r} is no address or network") from None
    return Proxy(options.proxy_header, options.proxy_from)


def application(storage: Callable[[], Storage | None], options: WebOptions) -> ASGIApp:
    """Return the application as the options ask.

    :raises ConfigError: as :func:`authorize_of`
    """
    hosts = {options.host, *options.allowed_hosts}
    authorize = authorize_of(options)
    return dashboard(storage, authorize=authorize, hosts=hosts, redact=options.redact)


def serve(url: str, options: WebOptions) -> Coroutine[Any, Any, int]:
    """Serve until a signal. Return the exit code.

    A store that is away is opened as soon as there is one. Until then requests are answered 503.

    :raises ConfigError: as :func:`authorize_of`, before anything is opened
    """
    opening = _Opening(url)
    return _serve(application(lambda: opening.storage, options), opening, options)


@contextlib.asynccontextmanager
async def serving_beside(storage: Storage, options: WebOptions) -> AsyncIterator[str]:
    """Serve beside what the block does, and yield the address. Signals stay with the program.

    :raises ConfigError: as :func:`authorize_of`, or the port cannot be used
    """
    app = application(lambda: storage, options)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listener = socket.create_server((options.host, options.port), family=family)
    except OSError:
        raise _no_port(options) from None
    with listener:
        port = listener.getsockname()[1]
        server = _Beside(_configured(app, options))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield address_of(options.host, port)
        finally:
            # As by a signal, which live streams hear of.
            server.handle_exit(signal.SIGTERM, None)
            await serving


def address_of(host: str, port: int) -> str:
    """Return the address for browsers."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class _Opening:
    """Opens the store, again and again until there is one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.storage: Storage | None = None

    async def run(self) -> None:
        """Open the store.

        :raises ForgeJobsError: what no waiting mends
        """
        is_said = False
        while self.storage is None:
            try:
                self.storage = await open_storage(self._url)
            except Unavailable as error:
                if not is_said:
                    logger.warning("the store is away; trying again every second: %s", error)
                is_said = True
                await asyncio.wait({asyncio.ensure_future(_pause())})


async def _pause() -> None:
    event = asyncio.Event()
    try:
        await asyncio.wait_for(event.wait(), _TRY_AGAIN_AFTER)
    except TimeoutError:
        return


class _Ending(uvicorn.Server):
    """A server whose live streams end at once when a stop is asked for."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        end_streams()


class _Server(_Ending):
    """A server that stops at a signal, and lets the program close the store afterwards."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


class _Beside(_Ending):
    """A server in a program that has its own signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _no_port(options: WebOptions) -> ConfigError:
    return ConfigError(f"port {options.port} of {options.host} cannot be used; give another --port")


def _configured(app: ASGIApp, options: WebOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ws="none",
    )


async def _serve(app: ASGIApp, opening: _Opening, options: WebOptions) -> int:
    server = _Server(_configured(app, options))
    opened = asyncio.ensure_future(opening.run())

    def give_up(done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and done.exception() is not None:
            server.should_exit = True

    opened.add_done_callback(give_up)
    try:
        try:
            await server.serve()
        except SystemExit:
            raise _no_port(options) from None
        if opened.done() and not opened.cancelled() and (error := opened.exception()):
            raise error if isinstance(error, ForgeJobsError) else RuntimeError from error
    finally:
        opened.cancel()
        if opening.storage is not None:
            await opening.storage.aclose()
    return 0
