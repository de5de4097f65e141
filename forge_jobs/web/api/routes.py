"""Routes of the API: one per operation, and the document that describes them."""

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import msgspec
from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from ulid import ULID

from forge_jobs.errors import InvalidInput
from forge_jobs.model.answering.filters import as_filter
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.operating.access import Actor
from forge_jobs.operating.actions.previews import MAX_KEY, Apply
from forge_jobs.operating.documents import plain
from forge_jobs.operating.operations import API
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.api.binding import ALL_JOBS, Bound, bound_operations
from forge_jobs.web.api.bodies import NewJobBody, WhichBody
from forge_jobs.web.api.conditions import TAGS, Conditions
from forge_jobs.web.api.document import KEY, openapi
from forge_jobs.web.problems import Refused
from forge_jobs.web.source import Source
from forge_jobs.web.values import tagged

JSON = "application/json"
SLASH = "\x1f"
"""Stands in a path for a slash that is part of a name."""


def api_routes(source: Source) -> list[Route]:
    """Return the routes below :data:`~forge_jobs.operating.operations.API`."""
    by_path: dict[str, dict[str, Bound]] = {}
    for bound in bound_operations():
        by_path.setdefault(bound.path, {})[bound.method] = bound
    conditions = Conditions()
    # Routes without names in braces first: /jobs/cancel is no job.
    paths = sorted(by_path, key=lambda path: ("{" in path, path))
    routes = [
        Route(API + path, _endpoint(source, by_path[path], conditions), methods=list(by_path[path]))
        for path in paths
    ]
    return [Route(f"{API}/openapi.json", _described), *routes]


async def _described(request: Request) -> Response:
    root: str = request.scope.get("root_path", "")
    return tagged(request, openapi(root), JSON)


def _endpoint(
    source: Source, by_method: dict[str, Bound], conditions: Conditions
) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        bound = by_method[method]
        actor: Actor = structs.replace(request.state.actor, surface="api")
        storage = source.storage()
        arguments = await _arguments(bound, request, storage, actor)
        name = bound.operation.name
        async with AsyncExitStack() as stack:
            operator = await stack.enter_async_context(source.operator(actor))
            about = str(arguments.get("name", ""))
            await conditions.enter(stack, operator, name, about, request.headers)
            value = await getattr(operator, name)(**arguments)
            tag = await TAGS[name](operator, about) if name in TAGS else None
        # Payloads stay byte for byte: no white space of theirs is touched.
        answer = tagged(request, msgspec.json.encode(plain(value)), JSON)
        if tag is not None:
            answer.headers["ETag"] = f'"{tag}"'
        return answer

    return serve


async def _arguments(
    bound: Bound, request: Request, storage: Storage, actor: Actor
) -> dict[str, Any]:
    """Return the arguments of the operation.

    :raises Refused: the request does not fit the operation
    """
    found = bound.read_query(request.query_params.multi_items())
    found |= {name: text.replace(SLASH, "/") for name, text in request.path_params.items()}
    for argument in bound.arguments:
        if argument.form is JobFilter and argument.name in found:
            found[argument.name] = await filter_of(found[argument.name], storage)
    content = await request.body()
    if content and bound.body is not None:
        _check_json(request)
    if bound.method != "GET":
        body = bound.read_body(content)
        if bound.body_name:
            found[bound.body_name] = await _argument_of(body, request, storage, actor)
        elif body is not None:
            found |= await _fields_of(body, request, storage, actor)
    return found


async def _fields_of(body: Any, request: Request, storage: Storage, actor: Actor) -> dict[str, Any]:
    """Return the arguments that are fields of the body."""
    found: dict[str, Any] = {}
    for name in body.__struct_fields__:
        value = getattr(body, name)
        found[name] = await _argument_of(value, request, storage, actor)
        if isinstance(value, WhichBody) and value.all:
            found[ALL_JOBS] = True
    return found


def _check_json(request: Request) -> None:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON:
        raise Refused(
            415, "wrong-media-type", "the body is not declared as JSON", f"send {JSON}",
            field="Content-Type",
        )  # fmt: skip


async def _argument_of(body: Any, request: Request, storage: Storage, actor: Actor) -> Any:
    if isinstance(body, WhichBody):
        body.check()
        if body.ids is not None:
            return JobFilter(ids=tuple(check_job_id(each, "ids") for each in body.ids))
        return await filter_of(body.q, storage)
    if isinstance(body, NewJobBody):
        return _named(body, request, actor).request()
    if isinstance(body, Apply):
        key = _key_of(request, "key" if body.key else "")
        return structs.replace(body, key=key) if key else body
    return body


async def filter_of(text: str, storage: Storage) -> JobFilter:
    """Return the filter that a line of the filter language means at the store's time.

    :raises InvalidInput: names the term
    """
    return as_filter(parse_query(text), await now_of(storage))


async def now_of(storage: Storage) -> datetime:
    """Return the store's time."""
    return await storage.cron.now()


def _named(body: NewJobBody, request: Request, actor: Actor) -> NewJobBody:
    """Return the body with the id that an ``Idempotency-Key`` stands for.

    :raises InvalidInput: the key is too long, or given together with an id
    """
    key = _key_of(request, "" if body.id is None else "id")
    if not key:
        return body
    digest = hashlib.sha256(f"{actor.name}\0{key}".encode("utf-8", "replace")).digest()
    # The first bits are the time of an id: zero, so that the id depends on the key alone.
    return structs.replace(body, id=str(ULID(bytes(6) + digest[:10])))


def _key_of(request: Request, beside: str) -> str:
    """Return the ``Idempotency-Key`` of a request, "" without one.

    :param beside: the field of the body that says the same. "" when not given
    :raises InvalidInput: the key is too long, or given together with that field
    """
    keys = request.headers.getlist(KEY)
    if not keys:
        return ""
    [key] = keys if len(keys) == 1 else [""]
    if not 0 < len(key) <= MAX_KEY:
        raise InvalidInput(KEY, "is not one key", f"give 1 to {MAX_KEY} letters")
    if beside:
        raise InvalidInput(beside, f"is given together with {KEY}", "give one of the two")
    return key
