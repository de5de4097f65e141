"""The end of a call in a thread, which no cancellation brings about."""

import asyncio

import pytest

from forge_jobs.runtime.shared.threads import ThreadEnd

pytestmark = pytest.mark.anyio


async def test_a_cancellation_waits_for_the_thread() -> None:
    end = ThreadEnd(asyncio.get_running_loop())
    assert not end.cancel()
    end.set_result(("done", None))
    assert await end == ("done", None)


@pytest.mark.parametrize("cancelled_before", [True, False])
async def test_a_thread_that_is_left_is_waited_for_no_more(cancelled_before: bool) -> None:
    end = ThreadEnd(asyncio.get_running_loop())
    if cancelled_before:
        end.cancel()
    end.leave()
    assert end.cancelled() is cancelled_before
    end.cancel()
    assert end.cancelled()


async def test_a_thread_that_is_left_may_still_end() -> None:
    end = ThreadEnd(asyncio.get_running_loop())
    end.leave()
    end.set_result(("done", None))
    assert await end == ("done", None)
