"""The dashboard on a store, called in this process by httpx."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.backends import BACKENDS, pass_on

ADA = Actor(name="ada", access=Access(actions=frozenset({"*"}), payloads=True))

Caller = Callable[..., httpx.AsyncClient]


def client_of(app: object, **options: object) -> httpx.AsyncClient:
    """Return a client of an ASGI application, as a browser on this machine."""
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 5000))  # type: ignore[arg-type]
    given = {"base_url": "http://localhost", "headers": {"Sec-Fetch-Site": "same-origin"}}
    return httpx.AsyncClient(transport=transport, **(given | options))  # type: ignore[arg-type]


@pytest.fixture(params=sorted(BACKENDS))
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    """An empty store."""
    async with BACKENDS[request.param](tmp_path, None) as opened:
        yield opened
    await pass_on(request.param, tmp_path)


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Storage]:
    """An empty store on SQLite, for tests that are not about stores."""
    async with BACKENDS["sqlite"](tmp_path, None) as opened:
        yield opened


@pytest.fixture
async def caller(storage: Storage) -> AsyncIterator[httpx.AsyncClient]:
    """Calls the dashboard as an operator who may do everything."""
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        yield client
