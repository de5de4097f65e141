"""The application: routes, and who may call them."""

import inspect
import re
from collections.abc import Collection
from urllib.parse import quote, unquote

from msgspec import structs
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_jobs.errors import ForgeJobsError, InvalidInput, a_type
from forge_jobs.model.names import name_of_part
from forge_jobs.operating.access import Actor
from forge_jobs.operating.operations import API
from forge_jobs.operating.redaction import Redaction
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.access import Authorize, actor_of
from forge_jobs.web.api.routes import SLASH, api_routes
from forge_jobs.web.guard import PROBES, Guard
from forge_jobs.web.health import probes
from forge_jobs.web.live.route import live_route
from forge_jobs.web.metrics import metrics_route
from forge_jobs.web.pages.assets import STATIC
from forge_jobs.web.pages.frame import Shown, written
from forge_jobs.web.pages.routes import page_routes
from forge_jobs.web.problems import Refused, answer, refusal_of
from forge_jobs.web.source import Source, StorageSource


def dashboard(
    storage: StorageSource,
    *,
    authorize: Authorize,
    hosts: Collection[str] | None = None,
    redact: Collection[str] = (),
) -> ASGIApp:
    """Return the HTTP API and the dashboard as an ASGI application.

    Mount the application at any prefix: ``app.mount("/jobs", dashboard(storage, authorize=...))``.
    Several in one process share nothing. Nothing is served before ``authorize`` has said yes,
    except ``/healthz``, ``/readyz`` and the static files.

    :param storage: what ``await open_storage(url)`` returned, or a function that returns that, for
        a host application that opens the storage in a lifespan. The application never closes the
        storage
    :param authorize: called with each request. Returns the ``Actor``: who calls, and
        what that one may do. None refuses. May be ``async def``
    :param hosts: names that a Host header may have, beside addresses and ``localhost``. None: any,
        which is for host applications that check the header
    :param redact: names of fields that are hidden on pages and in the API, in payloads, results,
        metadata, errors and logs, as fields marked ``Secret`` are: ``["password", "card.number"]``
    :raises InvalidInput: a parameter has the wrong type
    """
    if not (isinstance(storage, Storage) or callable(storage)):
        fix = "give what `await open_storage(url)` returns, or a function that returns that"
        raise InvalidInput("storage", f"is {a_type(storage)}", fix)
    if not callable(authorize):
        fix = "give a function of the request that returns an Access or None"
        raise InvalidInput("authorize", f"is {a_type(authorize)}", fix)
    return Guard(_Application(Source(storage, Redaction(redact)), authorize), hosts=hosts)


_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class _Application:
    """Asks who calls, then serves the route."""

    def __init__(self, source: Source, authorize: Authorize) -> None:
        self._authorize = authorize
        self._source = source
        routes: list[BaseRoute] = [*probes(source), metrics_route(source)]
        live = live_route(source, with_messages=not source.redaction)
        routes += [live, *api_routes(source), *page_routes(source)]
        self._routes = Starlette(
            routes=routes,
            exception_handlers={
                HTTPException: _http_problem,
                Refused: _problem,
                ForgeJobsError: _problem,
                Exception: _problem,
            },
        )
        self._routes.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root: str = scope.get("root_path", "")
        path = _named(_whole_names(scope).removeprefix(root)) or "/"
        # A mount leaves "" for the prefix alone, which matches no route.
        scope = {**scope, "path": root + path}
        if path not in PROBES and not path.startswith(f"{STATIC}/"):
            scope["state"]["actor"] = await self._actor(Request(scope))
        if scope.get("method", "GET") not in _SAFE and self._source.has_reader:
            send = self._forgetting(send)
        await self._routes(scope, receive, send)

    def _forgetting(self, send: Send) -> Send:
        """Let the next page show what this request has changed."""

        async def forget(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._source.reader().forget()
            await send(message)

        return forget

    async def _actor(self, request: Request) -> Actor:
        answered = self._authorize(request)
        given = await answered if inspect.isawaitable(answered) else answered
        actor = actor_of(given)
        if actor is None or not actor.access.read:
            raise Refused(403, "not-allowed", "the caller may not read", "ask for the right")
        return actor


def _named(path: str) -> str:
    """Return the path, where ``~.`` stands for the name ``.``, which no address can have."""
    return "/".join(map(name_of_part, path.split("/"))) if "~" in path else path


def _whole_names(scope: Scope) -> str:
    """Return the path, where a slash within a name is no separator."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    raw = raw.partition(b"?")[0]
    if b"%2f" not in raw.lower() or unquote(raw.decode("ascii", "replace")) != path:
        return path
    marked = re.sub("%2f", quote(SLASH), raw.decode("ascii"), flags=re.IGNORECASE)
    return unquote(marked)


def _problem(request: Request, error: Exception) -> Response:
    return _answer(request, refusal_of(error))


def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        fix = f"use {headers.get('Allow', '')}"
        problem = "the address knows no such method"
        refused = Refused(405, "wrong-method", problem, fix, headers=headers)
    else:
        refused = Refused(404, "unknown-address", "there is no such address", "see openapi.json")
    return _answer(request, refused)


def _answer(request: Request, refused: Refused) -> Response:
    """Return a page to people, and a document to programs."""
    root = request.scope.get("root_path", "")
    is_api = request.scope["path"].removeprefix(root).startswith(API)
    if is_api or "text/html" not in request.headers.get("accept", ""):
        return answer(refused, request.state.request_id)
    problem = structs.replace(refused.document, request_id=request.state.request_id)
    shown = Shown(template="problem.html", title=problem.title, values={"problem": problem})
    page = written(request, shown, None)
    page.status_code = problem.status
    page.headers.update(refused.headers)
    return page
