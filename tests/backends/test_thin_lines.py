"""Large payloads over a line that lets few bytes pass, behind a real proxy."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.storage.opening import open_storage
from tests.support.backends import forget, url_of
from tests.support.factories import new_job
from tests.support.proxy import Proxy, proxy
from tests.support.runtimes import a_runtime, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

SIZE = 400_000
SETTINGS = quick_settings(lease=seconds(20), fence_margin=seconds(2))


@pytest.fixture(params=["postgres", "redis"])
async def line(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Proxy]:
    url = await url_of(request.param, tmp_path)
    with proxy(url) as made:
        yield made
    await forget(request.param, tmp_path)


@pytest.mark.parametrize(
    ("rate", "jobs", "size"),
    [
        pytest.param(8_000_000, 40, SIZE, id="all of it would take two seconds"),
        pytest.param(
            1_500_000, 14, SIZE, id="what one claim brings would take three", marks=pytest.mark.long
        ),
        pytest.param(
            10_000_000,
            100,
            1_000_000,
            id="all of it would take ten seconds",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_jobs_come_as_the_line_lets_them(
    line: Proxy, rate: int, jobs: int, size: int
) -> None:
    handlers = HandlerRegistry()
    ran: set[int] = set()

    @handlers.job("large")
    async def large(n: int, text: str) -> None:
        ran.add(n)

    separator = "&" if "?" in line.url else "?"
    url = f"{line.url}{separator}timeout=1"
    async with await open_storage(url) as storage:
        text = "x" * size
        for n in range(jobs):
            payload = f'{{"n": {n}, "text": "{text}"}}'
            await storage.jobs.enqueue([new_job(kind="large", payload=payload)])
        line.narrow(rate)
        async with a_runtime(storage, handlers, jobs, settings=SETTINGS).start():
            await wait_until(lambda: len(ran) == jobs, description="all have run", timeout=120)
        line.heal()
