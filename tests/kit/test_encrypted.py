"""The kit shows encrypted jobs as the program reads them."""

import pytest

from forge_jobs import Encryption, HandlerRegistry
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing import Kit

pytestmark = pytest.mark.anyio

handlers, included = (
    HandlerRegistry(encryption=Encryption([Encryption.new_key()])) for _ in range(2)
)


@handlers.job("double")
def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


@included.job("triple")
def triple(number: int) -> int:
    """Return three times the number."""
    return 3 * number


handlers.include(included)


async def test_payloads_and_results_are_read(forge_storage: Storage) -> None:
    kit = Kit(forge_storage, lambda: handlers)
    ids = [(await kit.enqueue(each.request(7))).job_id for each in (double, triple)]

    runs = await kit.drain()

    assert sorted(run.result or "" for run in runs) == ["14", "21"]
    for handler in (double, triple):
        await kit.assert_enqueued(handler, payload={"number": 7}, status="done", count=1)
    with pytest.raises(AssertionError, match=r"double {'number': 7} .* is 7, not 8"):
        await kit.assert_enqueued("double", payload={"number": 8})
    stored = await forge_storage.jobs.get(ids)
    assert all("number" not in job.payload for job in stored.values())


async def test_without_the_key_a_job_is_shown_as_it_is_stored(forge_storage: Storage) -> None:
    await Kit(forge_storage, handlers).enqueue(double.request(7))
    stranger = Kit(forge_storage, HandlerRegistry())
    [job] = await stranger.assert_enqueued("double", count=1)
    assert "forge_jobs.encrypted" in job.payload
    assert await Kit(forge_storage, handlers).run_inline(double, 7) == 14
