"""Items that the store alone refuses, as the reaper and the hand-over send them."""

from collections.abc import Sequence

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import SchemaMismatch, StorageClosed, StorageError
from forge_jobs.runtime.passes.bisecting import LONGEST_PAUSE_S, BisectingSender

pytestmark = pytest.mark.anyio


async def test_an_item_that_never_comes_again_is_forgotten() -> None:
    clock = ManualClock()
    sender = BisectingSender("item", clock=clock)
    bad = {"first"}

    async def call(items: Sequence[str]) -> int:
        if bad & {*items}:
            raise StorageError("the test refuses it")
        return len(items)

    await sender.send(["first", "good"], call, str)
    assert sender.waiting == {"first"}
    clock.advance(20 * LONGEST_PAUSE_S)
    bad.add("second")
    await sender.send(["second", "good"], call, str)

    assert sender.waiting == {"second"}
    assert {*sender._aside} == {"second"}


@pytest.mark.parametrize("error", [StorageClosed("closed"), SchemaMismatch("too new")])
async def test_a_storage_that_is_closed_or_of_another_schema_is_no_fault_of_an_item(
    error: StorageError,
) -> None:
    sender, sent = BisectingSender("item"), []

    async def call(items: Sequence[str]) -> None:
        sent.append([*items])
        raise error

    for items in (["first", "second"], ["first"]):
        with pytest.raises(type(error)):
            await sender.send(items, call, str)
    assert sender.refusals == ()
    assert sent == [["first", "second"], ["first"]]
