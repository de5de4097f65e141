"""The checks of every request, before and after the application: closed by default."""

import asyncio
import contextlib
import ipaddress
import secrets
from collections.abc import Collection, Mapping
from urllib.parse import quote, unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_jobs.reports import reporter
from forge_jobs.web.pages.assets import STATIC
from forge_jobs.web.problems import Refused, answer, refusal_of, unavailable

logger = reporter(__name__)

MAX_BODY = 2 * 1024 * 1024
"""Bytes. The largest payload, and as much again for what JSON escapes."""

MAX_QUERY = 8 * 1024
MAX_PATH = 2 * 1024
MAX_SECONDS = 30.0
"""For a request that is no stream."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PROBES = frozenset({"/healthz", "/readyz"})

_OWN_ORIGIN = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
_OF_FILES = ("script-src", "style-src", "img-src", "font-src")

HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def policy(root: str) -> str:
    """Return the Content-Security-Policy: files come from this origin and from the own folder.

    Browsers enforce both policies of the header. The first one names the origin, and the second
    the folder on any host, so the answer holds no name that a request has given.

    :param root: the prefix of the dashboard, "" without one
    """
    folder = f"*:*{quote(root)}{STATIC}/"
    return f"{_OWN_ORIGIN}, {'; '.join(f'{name} {folder}' for name in _OF_FILES)}"


class Guard:
    """Bounds a request, refuses foreign ones, and makes a problem of every error.

    :param hosts: names that a Host header may have, beside addresses and ``localhost``. None: the
        host application decides
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        scope = _with_prefix(scope)
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        sending = _Sending(send, request_id, policy(scope.get("root_path", "")))
        try:
            self._check(scope)
            body = await _body(scope, receive)
            async with asyncio.timeout(MAX_SECONDS) as limit:
                scope["state"]["time_limit"] = limit
                await self._app(scope, _Receiving(body, receive), sending)
        except Exception as error:  # every error has an answer
            await _answer_error(error, scope, receive, sending)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if len(scope.get("query_string", b"")) > MAX_QUERY:
            raise Refused(
                400,
                "too-long",
                "the query is too long",
                f"give at most {MAX_QUERY} bytes",
                field="query",
            )
        if len(scope["path"]) > MAX_PATH:
            raise Refused(
                400,
                "too-long",
                "the path is too long",
                f"give at most {MAX_PATH} characters",
                field="path",
            )
        self._check_host(headers)
        if scope["method"] not in SAFE:
            _check_origin(headers)

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if self._hosts is None:
            return
        if len(given) != 1 or not _is_known(given[0], self._hosts):
            raise Refused(
                400,
                "foreign-host",
                "the Host header names another host",
                "call by address, or allow the name by FORGE_WEB_ALLOW_HOST",
                field="Host",
            )


def _with_prefix(scope: Scope) -> Scope:
    """Return the scope with the prefix of a host application that cuts the prefix off the path.

    Litestar does, and leaves ``root_path`` empty. Only ``raw_path`` has the prefix then.
    """
    raw: bytes = scope.get("raw_path") or b""
    whole = unquote(raw.partition(b"?")[0].decode("ascii", "replace"))
    path: str = scope["path"].rstrip("/")
    if scope.get("root_path") or not whole.rstrip("/").endswith(path):
        return scope
    prefix = whole.rstrip("/").removesuffix(path)
    return {**scope, "root_path": prefix, "path": whole} if prefix else scope


def _is_known(given: str, hosts: Collection[str]) -> bool:
    """Tell whether a Host header is no name that another site could point here."""
    name = given.lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return name.rstrip(".") in hosts or name == "localhost"


def _check_origin(headers: Headers) -> None:
    """Refuse what a page of another site could have sent."""
    site = headers.get("sec-fetch-site")
    if site == "same-origin":
        return
    if site is None and headers.get("authorization", "").lower().startswith("bearer "):
        return
    raise Refused(
        403,
        "foreign-origin",
        "the request comes from another site, or from a program without a token",
        "send Authorization: Bearer TOKEN, or use the pages of this dashboard",
        field="Sec-Fetch-Site",
    )


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Read the whole body, within the limits of size and time."""
    headers = Headers(scope=scope)
    if "content-length" not in headers and "transfer-encoding" not in headers:
        return b""
    parts, size = [], 0
    async with asyncio.timeout(MAX_SECONDS):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(
                    400, "incomplete", "the body ended early", "send the whole body", field="body"
                )
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MAX_BODY:
                raise Refused(
                    413,
                    "too-large",
                    f"the body is larger than {MAX_BODY} bytes",
                    "send less",
                    field="body",
                )
            if not message.get("more_body", False):
                return b"".join(parts)


class _Receiving:
    """Hands the body that was read to the application, then what the client does."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Sending:
    """Adds the headers that every answer has."""

    def __init__(self, send: Send, request_id: str, policy: str) -> None:
        self._send = send
        self._request_id = request_id
        self._policy = policy
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            message.setdefault("headers", [])
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            headers["Content-Security-Policy"] = self._policy
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


async def _answer_error(
    error: Exception, scope: Scope, receive: Receive, sending: _Sending
) -> None:
    request_id = scope["state"]["request_id"]
    refused = unavailable(error) if isinstance(error, TimeoutError) else refusal_of(error)
    if refused.document.status == 500:
        logger.error(
            "request %s (%s %r) failed by a defect of forge_jobs; please report the traceback",
            request_id,
            scope["method"],
            scope["path"],
            exc_info=error,
        )
    if not sending.has_started:
        await answer(refused, request_id)(scope, receive, sending)
