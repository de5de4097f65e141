"""The page of a pod: what is offered, what a deed would interrupt, and the answers."""

import re
from html import unescape

import httpx
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.pod_requests import PodVerb
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import register
from tests.support.requests import answered
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until
from tests.web.conftest import ADA, client_of
from tests.web.scene import playing
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio


def offered(text: str) -> set[str]:
    return set(re.findall(r"/act/(\w+_pod|show_stacks)\?", text))


async def test_what_a_pod_can_be_asked_is_offered_and_what_it_would_refuse_is_not(
    storage: Storage,
) -> None:
    app = dashboard(storage, authorize=lambda _: ADA)
    async with a_runtime(storage, HandlerRegistry()).start() as handle, client_of(app) as client:
        path = f"/pods/{handle.host_id}"
        assert offered(await page(client, path)) == {"show_stacks", "quiet_pod", "stop_pod"}
        await answered(storage, handle.host_id, PodVerb.QUIET)
        quiet = await page(client, path)
        assert offered(quiet) == {"show_stacks", "resume_pod", "stop_pod"}
        assert "quiet" in quiet
        assert "The pod answered after" in quiet
        assert "1 quiet" in await page(client, "/pods")
    reader = dashboard(storage, authorize=lambda _: Actor(name="bob", access=Access()))
    lease = await register(storage)
    async with client_of(reader) as client:
        assert offered(await page(client, f"/pods/{lease.host_id}")) == set()


async def test_a_stop_says_before_what_runs_there(sqlite: Storage) -> None:
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with playing(sqlite), client_of(app) as client:
        pods = await page(client, "/pods")
        [pod] = set(re.findall(r'href="(/pods/[^"]+)"', pods))
        assert "/act/cancel_jobs?id=" in await page(client, pod)
        preview = unescape(await page(client, f"/act/stop_pod?name={pod.removeprefix('/pods/')}"))
        assert "image.crop in " in preview
        assert "forge-jobs pods stop " in preview
        assert f"/api/v1{pod}/stop" in preview


async def test_stacks_are_shown_in_the_page_of_the_answer(sqlite: Storage) -> None:
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with a_runtime(sqlite, HandlerRegistry()).start() as handle, client_of(app) as client:
        path = f"/act/show_stacks?name={handle.host_id}"
        texts: list[str] = []

        async def shown() -> bool:
            answer = await client.post(path)
            texts.append(answer.text)
            # On a loaded machine a pod may stand still for the whole time of a request.
            return answer.status_code == httpx.codes.OK and "runs the event loop" in answer.text

        await wait_until(shown, description="the pod shows stacks")
        assert "The pod has answered" in texts[-1]
        assert "The pod answered after" in texts[-1]
        assert "which runs the event loop" in unescape(
            await page(client, f"/pods/{handle.host_id}")
        )
