"""Errors of the API as ``application/problem+json``, and what they must not say."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from starlette.responses import Response

from forge_jobs.errors import (
    ConfigError,
    Conflict,
    Forbidden,
    ForgeJobsError,
    InvalidInput,
    Locked,
    NotFound,
    SchemaMismatch,
    StorageClosed,
    StorageRefused,
    Unavailable,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 5
"""Seconds after which a request is repeated that found no store."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The document of a refused request.

    :param code: stable, for programs
    :param field: the parameter or part of the body that is meant. "" when none is
    :param problem: what is wrong
    :param fix: what to do
    :param request_id: also in the log of the server, and in the header ``X-Request-Id``
    """

    status: int
    code: str
    title: str
    problem: str
    fix: str = ""
    field: str = ""
    request_id: str = ""


class Refused(Exception):
    """A request that is answered with a problem."""

    def __init__(
        self,
        status: int,
        code: str,
        problem: str,
        fix: str = "",
        *,
        field: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, code)
        self.document = Problem(
            status=status,
            code=code,
            title=TITLES[status],
            problem=problem,
            fix=fix,
            field=field,
        )
        self.headers = dict(headers or {})


TITLES: Mapping[int, str] = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Changed meanwhile",
    413: "Too large",
    415: "Wrong media type",
    429: "Too many failures",
    500: "Defect",
    503: "Unavailable now",
}


def refusal_of(error: BaseException) -> Refused:
    """Return the answer to an error. The texts of foreign exceptions are left out."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, InvalidInput):
        return Refused(400, "invalid", error.problem, error.fix, field=error.field)
    if isinstance(error, Forbidden):
        return Refused(403, "not-allowed", str(error), "ask for the right")
    if isinstance(error, NotFound):
        return Refused(404, "not-found", str(error), "check the name")
    if isinstance(error, Unavailable | StorageClosed | SchemaMismatch | ConfigError):
        return unavailable(error)
    if isinstance(error, Conflict):
        return Refused(409, "conflict", str(error), "read the newest state, then try again")
    if isinstance(error, ForgeJobsError):
        return Refused(409, "refused", str(error), "change the request")
    return Refused(
        500, "defect", "the request met a defect of the program", "report the request id"
    )


def unavailable(error: BaseException | None = None) -> Refused:
    """Return the answer while the store is away. The text of the error may name a host."""
    code, problem = "unavailable", "the store does not answer"
    if isinstance(error, Locked):
        code, problem = "locked", "an open transaction holds what the request needs"
    elif isinstance(error, SchemaMismatch):
        code, problem = "schema", "the store has another schema than this program"
    elif isinstance(error, StorageRefused):
        code, problem = "store-refused", "the store refuses what the request needs"
    elif isinstance(error, StorageClosed):
        code, problem = "closed", "this program has closed the store"
    elif isinstance(error, TimeoutError):
        code, problem = "too-slow", "the request took too long"
    fix = "run forge-jobs doctor" if code in ("schema", "store-refused") else "try again"
    return Refused(503, code, problem, fix, headers={"Retry-After": str(RETRY_AFTER)})


def answer(refused: Refused, request_id: str) -> Response:
    """Return the problem as a response."""
    document = msgspec.structs.replace(refused.document, request_id=request_id)
    body = msgspec.json.encode(document)
    return Response(body, document.status, refused.headers, MEDIA_TYPE)
