"""The dashboard on a store at work, served by uvicorn, and a Chromium that looks at the pages."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from msgspec import Struct
from playwright.async_api import Browser, async_playwright, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from forge_jobs import EnqueueRequest, JobClient, Workflow
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.queues import QueueEdit
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.support.backends import BACKENDS, pass_on
from tests.support.ports import free_ports
from tests.support.waiting import wait_until
from tests.web.scene import Scene, playing

VARIABLE = "FORGE_TEST_CHROMIUM"
expect.set_options(timeout=30_000)  # milliseconds: a machine that is busy is no failure
ADA = Actor(name="ada", access=ALL)


class Site(Struct, frozen=True):
    """The dashboard of a scene.

    :param address: without a slash at the end
    :param actions: verbs of actions that have a record, and their ids
    :param groups: queues with errors, and a group of each
    """

    address: str
    scene: Scene
    actions: dict[str, str]
    groups: dict[str, str]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium. A missing one fails the run."""
    named = os.environ.get(VARIABLE) or shutil.which("chromium")
    if not named:
        pytest.fail(f"there is no Chromium; apt-get install chromium, or set {VARIABLE}")
    return named


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """Chromium without a window."""
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        await launched.close()


@asynccontextmanager
async def serving(backend: str, folder: Path, prefix: str = "") -> AsyncIterator[Site]:
    """Serve the dashboard on a store of this kind while a pod works there.

    :param prefix: mount the dashboard there, in an application that serves files of its own
    """
    async with BACKENDS[backend](folder, None) as storage, playing(storage) as scene:
        app = dashboard(storage, authorize=lambda _: ADA, hosts=())
        if prefix:
            app = Starlette(routes=[Mount(prefix, app), Route("/uploads/{name}", _uploaded)])
        async with served(app) as address:
            actions, groups = await _acted(storage, ADA, scene), await _groups(storage)
            yield Site(f"{address}{prefix}", scene, actions, groups)
    await pass_on(backend, folder)


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an application, and return the address."""
    with free_ports() as port:
        config = uvicorn.Config(app, port=port, log_level="error", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        running = asyncio.ensure_future(server.serve())
        await wait_until(lambda: server.started, description="the server has started")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = server.force_exit = True
            await running


async def _uploaded(request: Request) -> Response:
    name = request.path_params["name"]
    if name.endswith(".js"):
        return Response("document.title = 'taken'", media_type="text/javascript")
    return Response("body { color: red }", media_type="text/css")


async def _acted(storage: Storage, actor: Actor, scene: Scene) -> dict[str, str]:
    async with Operator(storage, actor) as operator:
        await operator.release_held_jobs(JobFilter(ids=(JobId(scene.jobs["done"]),)))
        await operator.set_queue("images", QueueEdit(max_workers=7))
        scene.jobs["workflow"] = await _a_workflow(storage)
        found = (await operator.list_actions()).actions
        return {action.verb: action.id for action in found}


async def _a_workflow(storage: Storage) -> str:
    """Store a workflow whose first step has failed, and holds the other."""
    workflow = Workflow("nightly")
    request: EnqueueRequest = EnqueueRequest("mail.send", {"to": "all"}, queue="mail")
    workflow.step("fetch", request)
    workflow.step("report", request, after=["fetch"])
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(workflow)
        await client.cancel(stored.steps["fetch"].job_id)
    return stored.id


async def _groups(storage: Storage) -> dict[str, str]:
    async with Operator(storage, ADA) as operator:
        return {each.queue: each.id for each in (await operator.list_errors()).groups}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """The dashboard on SQLite."""
    async with serving("sqlite", tmp_path) as served:
        yield served
