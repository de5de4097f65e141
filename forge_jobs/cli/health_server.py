"""``/healthz``, ``/readyz`` and ``/metrics`` of a worker process, for supervisor and Prometheus."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any

from forge_jobs.errors import ConfigError

_CONNECTIONS = 32
"""At once. A further one is closed unanswered."""

_SECONDS = 5.0
"""The limit for a whole request and the answer."""

_REQUEST_BYTES = 8 * 1024

_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Probe = Callable[[], list[str]]
"""A function that lists problems. Empty when all is well."""

Text = Callable[[], Awaitable[tuple[int, str]]]
"""A function that answers a status and a text."""


def listening(port: int, host: str = "") -> socket.socket:
    """Return a socket that listens at ``port``.

    :param host: an address or a name of this machine. "" for all addresses
    :raises ConfigError: the port cannot be used
    """
    try:
        if host:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family, backlog=_CONNECTIONS)
        if socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_CONNECTIONS
                )
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        return socket.create_server(("", port), backlog=_CONNECTIONS)
    except OSError as error:
        raise _cannot_listen(port, host, error) from None


def _cannot_listen(port: object, host: str, error: OSError) -> ConfigError:
    at = f"--health-host {host} " if host else ""
    fix = f"give a port that is free{', and an address of this machine' if host else ''}"
    return ConfigError(f"{at}--health-port {port}: cannot listen there ({error.strerror}); {fix}")


class HealthServer:
    """Answers HTTP requests on the event loop of the handlers, so that an answer proves a turning
    loop. A slow client costs one of few connections for some seconds, and nothing else.

    :param port: the number of a port, or a socket that listens already
    :param probes: path -> probe: 200 when nothing is wrong, else 503 with one problem per line
    :param texts: path -> what answers there
    :param host: the address of a port that is given as a number. "" for all addresses
    """

    def __init__(
        self,
        port: int | socket.socket,
        probes: dict[str, Probe],
        texts: dict[str, Text] | None = None,
        host: str = "",
    ) -> None:
        self._port = port
        self._host = host
        self._probes = probes
        self._texts = texts or {}
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._is_over = False

    async def __aenter__(self) -> "HealthServer":
        """:raises ConfigError: the port cannot be used"""
        await self.open()
        return self

    async def open(self) -> None:
        """Answer from now on.

        :raises ConfigError: the port cannot be used
        """
        try:
            if isinstance(self._port, socket.socket):
                self._server = await asyncio.start_server(
                    self._accept, sock=self._port, limit=_REQUEST_BYTES
                )
            else:
                self._server = await asyncio.start_server(
                    self._accept, self._host or None, self._port, limit=_REQUEST_BYTES
                )
        except OSError as error:
            raise _cannot_listen(self._port, self._host, error) from None

    @property
    def is_open(self) -> bool:
        """Return whether connections are taken."""
        return self._server is not None

    def close(self) -> None:
        """Take no further connection."""
        if self._server is not None:
            self._server.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        self._is_over = True
        for writer in self._open:
            writer.transport.abort()

    def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Coroutine[Any, Any, None] | None:
        """Take a connection. The set knows each one at once: a task may be cancelled unbegun."""
        if self._is_over or len(self._open) >= _CONNECTIONS:
            writer.transport.abort()
            return None
        self._open.add(writer)
        return self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(request))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client's trouble
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        status, text = await self._judge(method, path)
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
            "Content-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)

    async def _judge(self, method: str, path: str) -> tuple[int, str]:
        probe = self._probes.get(path)
        write = self._texts.get(path)
        if probe is None and write is None:
            return 404, f"not found; there are {', '.join([*self._probes, *self._texts])}\n"
        if method not in ("GET", "HEAD"):
            return 405, "only GET and HEAD\n"
        if write is not None:
            return await write()
        problems = probe() if probe is not None else []
        return (503, "\n".join(problems) + "\n") if problems else (200, "ok\n")
