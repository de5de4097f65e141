"""Items that the store alone refuses, as the reaper and the hand-over send them."""

from collections.abc import Sequence

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import StorageError
from forge_jobs.runtime.passes.apart import LONGEST_PAUSE_S, Apart

pytestmark = pytest.mark.anyio


async def test_an_item_that_never_comes_again_is_forgotten() -> None:
    clock = ManualClock()
    apart = Apart("item", clock=clock)
    bad = {"first"}

    async def call(items: Sequence[str]) -> int:
        if bad & {*items}:
            raise StorageError("the test refuses it")
        return len(items)

    await apart.send(["first", "good"], call, str)
    assert apart.waiting == {"first"}
    clock.advance(20 * LONGEST_PAUSE_S)
    bad.add("second")
    await apart.send(["second", "good"], call, str)

    assert apart.waiting == {"second"}
    assert {*apart._aside} == {"second"}
