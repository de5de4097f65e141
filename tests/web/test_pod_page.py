"""The page of a pod: what is offered, what a deed would interrupt, and the answers."""

import re
from html import unescape

import httpx
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.metrics import MINUTE, Histogram
from forge_jobs.model.pod_requests import PodVerb
from forge_jobs.model.processes import PodGauges
from forge_jobs.model.series import FlowSample
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import register
from tests.support.requests import answered
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until
from tests.web.conftest import ADA, client_of
from tests.web.scene import playing
from tests.web.test_charts import columns
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


async def test_gauges_over_time_and_runs_beside_what_is_usual(storage: Storage) -> None:
    lease = await register(storage, queues=("images",), kinds=("image.crop",))
    other = await register(storage, queues=("images",))
    now = await storage.cron.now()
    minute = now.replace(second=0, microsecond=0)
    for ago, percent in ((5, 40.0), (4, 80.0)):
        await storage.procs.record_gauges(lease, minute - ago * MINUTE, gauges(percent))
    await storage.procs.record_gauges(other, minute - 4 * MINUTE, gauges(99.0))
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        text = await page(client, f"/pods/{lease.host_id}")
        cpu = columns(text, "cpu")
        assert [each for each in cpu["cpu"] if each != "\u2013"] == ["40", "80"]
        assert set(columns(text, "memory")["memory"]) == {"200", "\u2013"}
        assert set(columns(text, "lag")["lag"]) == {"2 ms", "\u2013"}
        assert "80" in columns(await page(client, f"/pods/{lease.host_id}?over=6h"), "cpu")["cpu"]
        await page(client, f"/pods/{lease.host_id}?over=30d", 400)


async def test_a_run_is_beside_its_usual_length_and_its_progress(sqlite: Storage) -> None:
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with playing(sqlite), client_of(app) as client:
        minute = (await sqlite.cron.now()).replace(second=0, microsecond=0)
        length = Histogram({bucket_of(0.01): 20})
        flow = FlowSample(
            queue="images",
            kind="image.crop",
            minute=minute - MINUTE,
            counts={"succeeded": 20},
            delay=length,
            processing=length,
            total=length,
        )
        assert not await sqlite.jobs.add_flows([flow])
        [pod] = set(re.findall(r'href="(/pods/[^"]+)"', await page(client, "/pods")))

        async def is_shown() -> bool:
            text = (await page(client, pod)).partition("<h2>Runs")[2]
            return "62 %" in text and "10 ms" in text

        await wait_until(is_shown, description="progress and the usual length are shown")


def gauges(percent: float) -> PodGauges:
    return PodGauges(
        cpu_percent=percent,
        memory_bytes=200 << 20,
        disk_free_bytes=9 << 30,
        store_latency_ms=1.5,
        loop_lag_ms=2.0,
        running=3,
    )
