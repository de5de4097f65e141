"""A wake-up shortens a wait. A lost wake-up is no error of the work that it announces."""

import asyncio
import threading
from datetime import timedelta

import pytest

from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, enqueue_one, get_job

pytestmark = pytest.mark.anyio


def listen_and_end_the_loop(storage: Storage) -> list[object]:
    """Start a listener whose event loop ends during the wait. Keep what is returned."""
    kept: list[object] = []

    def run() -> None:
        loop = asyncio.new_event_loop()

        async def begin() -> None:
            again = await storage.reopen()
            event = again.jobs._database.inboxes.of(None).listen(frozenset())  # type: ignore[attr-defined]
            kept.extend((again, event))

        loop.run_until_complete(begin())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return kept


async def test_an_enqueue_succeeds_though_a_listener_has_lost_its_event_loop(
    storage: Storage,
) -> None:
    kept = await asyncio.to_thread(listen_and_end_the_loop, storage)
    try:
        for _ in range(2):
            job_id = await enqueue_one(storage)
            assert (await get_job(storage, job_id)).id == job_id
        wake = await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(seconds=10))
        assert wake.queues == {QUEUE}
    finally:
        await kept[0].aclose()  # type: ignore[attr-defined]
