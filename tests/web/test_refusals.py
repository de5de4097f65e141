"""A refusal is a problem: a stable code, the field, what is wrong, a fix, the request."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from forge_jobs.operating.access import ALL
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from forge_jobs.web.alone.sign_in import FAILURES, SignIn
from forge_jobs.web.alone.users import User, hashed, write_user
from forge_jobs.web.api.binding import Bound, bound_operations
from forge_jobs.web.guard import MAX_BODY
from forge_jobs.web.problems import MEDIA_TYPE, TITLES
from tests.support.factories import enqueue_one
from tests.support.faulty import Faults, faulty
from tests.web.conftest import ADA, client_of

pytestmark = pytest.mark.anyio

API = "/api/v1"
_MISSING = "01M84XS13751WA5VGBWBY417EQ"
_JSON = {"Content-Type": "application/json"}


class Refusal(NamedTuple):
    """A request that is refused, and with what.

    :param who: ``ada`` may do everything, ``eve`` may look, ``""`` signs in by the file of users
    """

    status: int
    code: str
    field: str
    method: str
    path: str
    options: Mapping[str, Any] = {}
    who: str = "ada"


REFUSALS = (
    Refusal(400, "invalid", "limit", "GET", f"{API}/jobs?limit=0"),
    Refusal(400, "unknown-parameter", "lmit", "GET", f"{API}/jobs?lmit=1"),
    Refusal(400, "bad-body", "body", "POST", f"{API}/jobs", {"content": b"{", "headers": _JSON}),
    Refusal(400, "unexpected-body", "body", "POST", f"{API}/queues/gh/pause", {"json": {"n": 1}}),
    Refusal(
        400, "foreign-host", "Host", "GET", f"{API}/jobs", {"headers": {"Host": "evil.example"}}
    ),
    Refusal(
        400,
        "no-condition",
        "If-Match",
        "POST",
        f"{API}/queues/gh/pause",
        {"headers": {"If-Match": '"x"'}},
    ),
    Refusal(400, "too-long", "query", "GET", f"{API}/jobs?q={'x' * 9_000}"),
    Refusal(400, "too-long", "path", "GET", f"{API}/{'x' * 3_000}"),
    Refusal(401, "not-signed-in", "Authorization", "GET", f"{API}/jobs", who=""),
    Refusal(403, "not-allowed", "", "POST", f"{API}/jobs/delete", {"json": {"all": True}}, "eve"),
    Refusal(
        403,
        "foreign-origin",
        "Sec-Fetch-Site",
        "POST",
        f"{API}/jobs",
        {"headers": {"Sec-Fetch-Site": "cross-site"}},
    ),
    Refusal(404, "not-found", "", "GET", f"{API}/jobs/{_MISSING}"),
    Refusal(404, "unknown-address", "", "GET", f"{API}/nowhere"),
    Refusal(404, "unknown-address", "", "GET", "/nowhere"),
    Refusal(405, "wrong-method", "", "DELETE", f"{API}/jobs"),
    Refusal(
        409,
        "conflict",
        "",
        "POST",
        f"{API}/jobs",
        {"json": {"kind": "k", "id": _MISSING, "payload": {"n": 2}}},
    ),
    Refusal(
        412,
        "changed-meanwhile",
        "If-Match",
        "PATCH",
        f"{API}/queues/gh",
        {"json": {"max_workers": 2}, "headers": {"If-Match": '"old"'}},
    ),
    Refusal(413, "too-large", "body", "POST", f"{API}/jobs", {"content": b"x" * (MAX_BODY + 1)}),
    Refusal(415, "wrong-media-type", "Content-Type", "POST", f"{API}/jobs", {"content": b"kind=a"}),
    Refusal(
        415,
        "wrong-media-type",
        "Content-Type",
        "POST",
        "/act/pause_queue?name=gh",
        {"json": {"reason": "x"}},
    ),
    Refusal(
        429,
        "too-many-failures",
        "Authorization",
        "GET",
        f"{API}/jobs",
        {"headers": {"Authorization": "Bearer ci.wrong"}},
        "",
    ),
    Refusal(503, "unavailable", "", "GET", f"{API}/queues", who="away"),
)


@pytest.fixture
async def callers(sqlite: Storage, tmp_path: Path) -> dict[str, Any]:
    """The dashboards that the callers call."""
    write_user(tmp_path / "users.json", User(name="ci", token=hashed("right")))
    await enqueue_one(sqlite, kind="k", id=_MISSING, payload='{"n":1}')
    faults = Faults()
    away = dashboard(faulty(sqlite, faults), authorize=lambda _: ADA)
    faults.down = True
    eve = Actor(name="eve", access=Access())
    return {
        "ada": dashboard(sqlite, authorize=lambda _: ADA, hosts={"localhost"}),
        "eve": dashboard(sqlite, authorize=lambda _: eve),
        "": dashboard(sqlite, authorize=SignIn(tmp_path / "users.json")),
        "away": away,
    }


@pytest.mark.parametrize("given", REFUSALS, ids=lambda each: f"{each.status} {each.code}")
async def test_a_refusal_is_a_problem_that_says_what_to_do(
    callers: dict[str, Any], given: Refusal
) -> None:
    async with client_of(callers[given.who]) as client:
        if given.status == 404 and given.path.endswith(_MISSING):
            await client.post(f"{API}/jobs/delete", json={"ids": [_MISSING]})
        for _ in range(FAILURES if given.status == 429 else 0):
            await client.request(given.method, given.path, **given.options)
        answer = await client.request(given.method, given.path, **given.options)

    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (given.status, given.status), answer.text
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    assert (problem["code"], problem.get("field", "")) == (given.code, given.field)
    assert problem["title"] == TITLES[given.status]
    assert problem["problem"]
    assert problem["fix"]
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    assert ("Retry-After" in answer.headers) == (given.status in {429, 503})
    assert ("WWW-Authenticate" in answer.headers) == (given.status == 401)
    assert ("Allow" in answer.headers) == (given.status == 405)


def test_each_status_of_the_document_has_a_case() -> None:
    # 500 is a defect of the program, which no input makes.
    assert {each.status for each in REFUSALS} == set(TITLES) - {500}


each_route = pytest.mark.parametrize(
    "bound", bound_operations(), ids=lambda each: each.operation.name
)

_MAKES = {"set_queue", "add_schedule", "set_limit", "set_concurrency", "delete_queue", "add_strike"}
"""Operations that take names which are not there yet: they make what is named, and a queue without
jobs and settings is as one that was deleted."""

_BODIES: Mapping[str, Any] = {
    "set_schedule": {"expression": "@daily"},
    "discard_outbox": {"ids": [_MISSING]},
}
_QUERIES = {"desired_pods": "?objective=95%25+within+30s", "preview_strike": "?kind=k"}


def _address(bound: Bound, name: str) -> str:
    path = bound.path
    for part in ("job_id", "action_id", "host_id", "workflow_id"):
        path = path.replace(f"{{{part}}}", _MISSING)
    for part in ("name", "queue", "group"):
        path = path.replace(f"{{{part}}}", name)
    return API + path


@each_route
async def test_an_unknown_parameter_is_400_on_every_route(sqlite: Storage, bound: Bound) -> None:
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        answer = await client.request(bound.method, _address(bound, "gh") + "?oops=1")

    assert (answer.status_code, answer.json()["field"]) == (400, "oops")
    assert answer.json()["code"] == "unknown-parameter"


@pytest.mark.parametrize(
    "bound",
    [each for each in bound_operations() if "{" in each.path and each.operation.name not in _MAKES],
    ids=lambda each: each.operation.name,
)
async def test_an_unknown_name_is_404_on_every_route(storage: Storage, bound: Bound) -> None:
    name = bound.operation.name
    boss = Actor(name="ada", access=ALL)
    async with client_of(dashboard(storage, authorize=lambda _: boss)) as client:
        body = _BODIES.get(name, {}) if bound.body is not None else None
        answer: httpx.Response = await client.request(
            bound.method,
            _address(bound, "nowhere") + _QUERIES.get(name, ""),
            json=body if bound.method != "GET" else None,
        )

    assert (answer.status_code, answer.json()["code"]) == (404, "not-found"), answer.text
    assert answer.headers["Content-Type"] == MEDIA_TYPE
