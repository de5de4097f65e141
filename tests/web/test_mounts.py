"""The dashboard within other applications, two of them in one process, each below a prefix."""

import importlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import fastapi
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.support.backends import BACKENDS
from tests.web.conftest import ADA, client_of
from tests.web.streaming import viewing

pytestmark = pytest.mark.anyio

ONE, TWO = "/jobs", "/deep er/mail"
"""The prefixes. The second one has two parts and a blank."""


def in_starlette(mounted: dict[str, ASGIApp]) -> Any:
    return Starlette(routes=[Mount(prefix, app) for prefix, app in mounted.items()])


def in_fastapi(mounted: dict[str, ASGIApp]) -> Any:
    host = fastapi.FastAPI()
    for prefix, app in mounted.items():
        host.mount(prefix, app)
    return host


def in_litestar(mounted: dict[str, ASGIApp]) -> Any:
    litestar = importlib.import_module("litestar")

    def handler(prefix: str, app: ASGIApp) -> Any:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)

        for name, kind in (("scope", Scope), ("receive", Receive), ("send", Send)):
            serve.__annotations__[name] = kind
        return litestar.asgi(prefix, is_mount=True, copy_scope=True)(serve)

    return litestar.Litestar([handler(prefix, app) for prefix, app in mounted.items()])


def in_django(mounted: dict[str, ASGIApp]) -> Any:
    settings = importlib.import_module("django.conf").settings
    get_asgi_application = importlib.import_module("django.core.asgi").get_asgi_application

    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="test")
    routes = [Mount(prefix, app) for prefix, app in mounted.items()]
    return Starlette(routes=[*routes, Mount("/", get_asgi_application())])


def in_a_host_that_cuts(mounted: dict[str, ASGIApp]) -> Any:
    """Return a host that cuts the prefix off the path and says so nowhere, as Litestar does."""
    nothing = Starlette()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        for prefix, app in mounted.items():
            if scope["path"].startswith(f"{prefix}/"):
                path = scope["path"].removeprefix(prefix).rstrip("/")
                await app({**scope, "path": f"{path}/"}, receive, send)
                return
        await nothing(scope, receive, send)

    return serve


urlpatterns: list[Any] = []
"""The URLs of Django's part: none."""

each_host = pytest.mark.parametrize(
    "host",
    [
        in_starlette,
        in_fastapi,
        in_a_host_that_cuts,
        pytest.param(in_litestar, marks=pytest.mark.long),
        pytest.param(in_django, marks=pytest.mark.long),
    ],
    ids=lambda each: each.__name__,
)


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[dict[str, Storage]]:
    """Two stores, each with a queue of its own name, by prefix."""
    for name in ("gh", "mail"):
        (tmp_path / name).mkdir()
    async with (
        BACKENDS["sqlite"](tmp_path / "gh", None) as one,
        BACKENDS["sqlite"](tmp_path / "mail", None) as two,
    ):
        await one.config.set_queue("gh", QueueChange(max_workers=1))
        await two.config.set_queue("mail", QueueChange(max_workers=1))
        yield {ONE: one, TWO: two}


@each_host
async def test_two_dashboards_of_a_host_stay_below_their_prefixes(
    host: Callable[[dict[str, ASGIApp]], Any], stores: dict[str, Storage]
) -> None:
    app = host({at: dashboard(each, authorize=lambda _: ADA) for at, each in stores.items()})
    async with client_of(app) as client:
        for prefix, queue in ((ONE, "gh"), (TWO, "mail")):
            page = await client.get(f"{prefix}/queues")
            assert page.status_code == 200
            assert f'data-queue="{queue}"' in page.text
            links = re.findall(r'(?:href|src|data-address|action)="(/[^"]*)"', page.text)
            assert links
            assert [each for each in links if not each.startswith(f"{prefix}/")] == []
            for each in links:
                if "/static/" in each:
                    assert (await client.get(each)).status_code == 200
            described = (await client.get(f"{prefix}/api/v1/openapi.json")).json()
            assert described["servers"] == [{"url": f"{prefix}/api/v1"}]
            state = (await client.get(f"{prefix}/api/v1/live")).json()
            assert [each["name"] for each in state["queues"]] == [queue]
            changed = await client.post(f"{prefix}/api/v1/queues/{queue}/pause")
            assert changed.status_code == 200
        assert (await client.get("/queues")).status_code == 404


@each_host
async def test_a_stream_goes_through_the_host(
    host: Callable[[dict[str, ASGIApp]], Any], stores: dict[str, Storage]
) -> None:
    app = host({ONE: dashboard(stores[ONE], authorize=lambda _: ADA)})
    async with viewing(app, f"{ONE}/api/v1/live") as view:
        _, state = await view.event()
        assert [each["name"] for each in state["queues"]] == ["gh"]
        await stores[ONE].config.set_queue("new", QueueChange(max_workers=1))
        await view.until(lambda _, state: any(each["name"] == "new" for each in state["queues"]))
