"""The checks of every request: closed by default, and no error says more than it should."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from forge_jobs.errors import InvalidInput, Unavailable
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from forge_jobs.web.guard import MAX_BODY, MAX_QUERY, Guard
from tests.web.conftest import ADA, client_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def local(sqlite: Storage) -> AsyncIterator[httpx.AsyncClient]:
    app = dashboard(sqlite, authorize=lambda _: ADA, hosts={"jobs.example"})
    async with client_of(app) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "jobs.example:80:80", ""]
)
async def test_a_foreign_host_is_refused(local: httpx.AsyncClient, host: str) -> None:
    answer = await local.get("/", headers={"Host": host})

    assert answer.status_code == 400
    assert answer.json()["code"] == "foreign-host"


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8642", "127.0.0.1:8642", "[::1]:8642", "10.1.2.3", "jobs.example."],
)
async def test_a_known_host_is_served(local: httpx.AsyncClient, host: str) -> None:
    assert (await local.get("/healthz", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", ""])
async def test_an_unsafe_request_of_another_site_is_refused(
    local: httpx.AsyncClient, site: str
) -> None:
    headers = {"Sec-Fetch-Site": site, "Authorization": "Bearer x.y"}

    answer = await local.post("/", headers=headers)

    assert answer.status_code == 403
    assert answer.json()["code"] == "foreign-origin"


async def test_a_program_needs_a_token_for_an_unsafe_request(sqlite: Storage) -> None:
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with client_of(app, headers={}) as program:
        without = await program.post("/healthz")
        basic = await program.post("/healthz", headers={"Authorization": "Basic YTpi"})
        bearer = await program.post("/healthz", headers={"Authorization": "Bearer x"})

    assert [without.status_code, basic.status_code] == [403, 403]
    assert bearer.status_code == 405


async def test_every_answer_forbids_frames_and_foreign_content(local: httpx.AsyncClient) -> None:
    answers = [
        await local.get("/healthz"),
        await local.get("/nowhere"),
        await local.get("/", headers={"Host": "evil.example"}),
        await local.post("/", headers={"Sec-Fetch-Site": "cross-site"}),
    ]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert part in policy
        assert "unsafe" not in policy
        assert "nonce" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_files_come_from_the_own_folder_below_any_prefix(sqlite: Storage) -> None:
    inner = dashboard(sqlite, authorize=lambda _: ADA)
    host = Starlette(routes=[Mount("/a, b; c", inner)])
    async with client_of(host) as client:
        answer = await client.get("/a, b; c/healthz", headers={"Host": "evil.example"})

    origin, folder = answer.headers["Content-Security-Policy"].split(", ")
    assert "script-src 'self'" in origin
    for name in ("script-src", "style-src", "img-src", "font-src"):
        assert f"{name} *:*/a%2C%20b%3B%20c/static/" in folder.split("; ")
    assert "evil" not in str(answer.headers)


async def test_a_problem_carries_the_request_id_of_the_header(local: httpx.AsyncClient) -> None:
    answer = await local.get("/nowhere")

    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["request_id"] == answer.headers["X-Request-Id"]


async def test_a_wrong_method_names_the_right_ones(local: httpx.AsyncClient) -> None:
    answer = await local.delete("/healthz")

    assert answer.status_code == 405
    assert "GET" in answer.headers["Allow"]
    assert answer.json()["code"] == "wrong-method"


async def test_a_body_above_the_bound_is_refused(local: httpx.AsyncClient) -> None:
    answer = await local.post("/", content=b"x" * (MAX_BODY + 1))

    assert answer.status_code == 413
    assert answer.json()["code"] == "too-large"


async def test_a_long_query_is_refused(local: httpx.AsyncClient) -> None:
    answer = await local.get("/?q=" + "x" * MAX_QUERY)

    assert answer.status_code == 400
    assert answer.json()["code"] == "too-long"


async def test_a_caller_without_rights_is_refused_and_probes_are_answered(sqlite: Storage) -> None:
    for authorize in (lambda _: None, lambda _: Actor(name="eve", access=Access(read=False))):
        async with client_of(dashboard(sqlite, authorize=authorize)) as client:
            assert (await client.get("/")).status_code == 403
            assert (await client.get("/nowhere")).status_code == 403
            assert (await client.get("/healthz")).status_code == 200


async def test_authorize_may_be_async_and_sees_the_request(sqlite: Storage) -> None:
    async def authorize(request: Request) -> Actor | None:
        return ADA if request.headers.get("X-Who") == "ada" else None

    async with client_of(dashboard(sqlite, authorize=authorize)) as client:
        assert (await client.get("/")).status_code == 403
        assert (await client.get("/", headers={"X-Who": "ada"})).status_code == 200


@pytest.mark.parametrize("prefix", ["", "/jobs", "/admin/deep/jobs"])
async def test_several_are_mounted_in_one_process(sqlite: Storage, prefix: str) -> None:
    other = Actor(name="bob")
    first, second = (
        dashboard(sqlite, authorize=lambda _, who=who: who)  # type: ignore[misc]
        for who in (ADA, other)
    )
    host = Starlette(routes=[Mount(f"{prefix}/second", second), Mount(prefix or "/", first)])

    async with client_of(host) as client:
        for part in ("/healthz", "/readyz"):
            assert (await client.get(f"{prefix}{part}")).status_code == 200
            assert (await client.get(f"{prefix}/second{part}")).status_code == 200
        assert (await client.get(f"{prefix}/nowhere")).status_code == 404


async def test_a_store_that_is_not_open_yet_is_unavailable() -> None:
    async with client_of(dashboard(lambda: None, authorize=lambda _: ADA)) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("postgres://user:secret@host /srv/x.py"), 500),
        (Unavailable("cannot reach db.internal:5432"), 503),
        (TimeoutError(), 503),
        (InvalidInput("limit", "is 0", "give 1 to 1000"), 400),
    ],
)
async def test_no_answer_holds_the_text_of_a_foreign_error(error: Exception, status: int) -> None:
    async def broken(*_: Any) -> None:
        raise error

    async with client_of(Guard(broken, hosts=None)) as client:
        answer = await client.get("/")

    assert answer.status_code == status
    for leak in ("secret", "internal", "/srv", "Traceback"):
        assert leak not in answer.text
    assert ("Retry-After" in answer.headers) == (status == 503)


@pytest.mark.parametrize("value", [None, "sqlite:///x.db", 3])
def test_a_wrong_storage_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="storage"):
        dashboard(value, authorize=lambda _: ADA)


async def test_a_web_socket_is_closed(sqlite: Storage) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        raise AssertionError

    app = dashboard(sqlite, authorize=lambda _: ADA)
    with contextlib.suppress(AssertionError):
        await app({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == ["websocket.close"]
