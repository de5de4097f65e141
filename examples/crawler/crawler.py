"""A crawler that is polite to hosts it has never seen before: ``python crawler.py``.

- ``Limit(2, key="{host}")``: two pages of a host at once, over all pods, whichever hosts turn up.
  Pages of a busy host wait on hold, without a slot, while other hosts go on.
- A unique key with a window: a page that many others link to is fetched once.
- Each page enqueues the pages it links to before it ends, so a crash loses none of them.

The web is a stand-in: hosts that link to two others each, with pages that link to each other.
"""

import asyncio
import os
from collections import Counter

import anyio

from forge_jobs import (
    HandlerRegistry,
    JobContext,
    JobFilter,
    JobStatus,
    Limit,
    QueueRuntime,
    Unique,
    open_storage,
)

URL = os.environ.get("FORGE_STORAGE_URL", "sqlite:///crawl.db")
HOSTS, PAGES = int(os.environ.get("HOSTS", "40")), 6
OPEN = (JobStatus.PENDING, JobStatus.BLOCKED, JobStatus.IN_PROGRESS, JobStatus.FAILED)

handlers = HandlerRegistry()
running, most_at_once, fetched = Counter[str](), Counter[str](), Counter[str]()


async def links_of(host: str, page: int) -> list[tuple[str, int]]:
    """Answer as the web does, after a moment."""
    await anyio.sleep(0.01)
    number = int(host.removeprefix("host-"))
    inside = [(host, other) for other in range(PAGES) if other != page]
    outside = [(f"host-{other}", 0) for other in (2 * number + 1, 2 * number + 2) if other < HOSTS]
    return inside + outside


@handlers.job(
    "page.fetch",
    queue="crawl",
    concurrency=Limit(2, key="{host}"),
    unique=Unique(by=("host", "page"), mode="cooldown", window=3600),
)
async def fetch(ctx: JobContext, host: str, page: int) -> int:
    running[host] += 1
    most_at_once[host] = max(most_at_once[host], running[host])
    try:
        links = await links_of(host, page)
        await ctx.enqueue_many([fetch.request(host=other, page=at) for other, at in links])
        fetched[f"{host}/{page}"] += 1
    finally:
        running[host] -= 1
    return len(links)


async def main() -> None:
    async with (
        await open_storage(URL) as storage,
        QueueRuntime(storage, handlers).with_queues(crawl=20).start() as handle,
    ):
        await handle.enqueue(fetch.request(host="host-0", page=0))
        while await handle.client.count(JobFilter(queues="crawl", statuses=OPEN)):  # noqa: ASYNC110
            await anyio.sleep(0.1)
    again = sum(number > 1 for number in fetched.values())
    print(f"{len(fetched)} pages of {len(most_at_once)} hosts, {again} of them twice")
    print(f"at most {max(most_at_once.values())} pages of a host at once")


if __name__ == "__main__":
    asyncio.run(main())
