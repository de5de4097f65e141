"""``drain``: everything that is due, and what the jobs enqueue."""

from datetime import timedelta

import pytest

from forge_jobs import DEAD_LETTER_KIND, After, JobStatus
from forge_jobs.model.jobs import Cause
from forge_jobs.model.queues import QueueChange
from forge_jobs.testing import Kit, TooManyRuns
from tests.kit import shop

pytestmark = pytest.mark.anyio


async def test_it_runs_what_is_due_and_what_that_enqueues(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.split.request([1, 2]))
    await forge_kit.enqueue(shop.send_receipt.request(3), delay=60)

    drained = await forge_kit.drain()

    assert [(run.kind, run.status) for run in drained] == [
        ("shop.split", JobStatus.DONE),
        ("mail.receipt", JobStatus.DONE),
        ("mail.receipt", JobStatus.DONE),
    ]
    assert drained[1].result == '"1 in attempt 1"'
    await forge_kit.assert_enqueued(shop.send_receipt, status="pending", count=1, due_in=60)


async def test_a_job_that_waits_for_another_runs_after_it(forge_kit: Kit) -> None:
    first = await forge_kit.enqueue(shop.send_receipt.request(1))
    await forge_kit.enqueue(shop.chain.request(0), after=[After(first.job_id)])
    assert [run.kind for run in await forge_kit.drain()] == ["mail.receipt", "shop.chain"]


async def test_failures_are_reported_and_stored(forge_kit: Kit) -> None:
    for how in ("error", "dead", "snoozed"):
        await forge_kit.enqueue(shop.end.request(how))

    drained = await forge_kit.drain()

    assert drained.counts == {"failed": 1, "dead": 1, "pending": 1}
    assert [run.cause for run in drained.failures] == [Cause.FAILED, Cause.REJECTED]
    assert isinstance(drained[0].exception, ValueError)
    assert "retrying, again in" in repr(drained)
    assert "ValueError: no such order" in repr(drained)
    await forge_kit.assert_enqueued(shop.end, status="failed", payload={"how": "error"}, count=1)


async def test_a_retry_has_the_longest_pause_so_that_no_drain_runs_a_failure_again(
    forge_kit: Kit,
) -> None:
    await forge_kit.enqueue(shop.end.request("error"))
    for pause in (1, 2, 4):
        [run] = await forge_kit.drain()
        assert run.delay == timedelta(seconds=pause)
        await forge_kit.advance(seconds=pause)


async def test_a_failure_is_raised_on_request(forge_kit: Kit) -> None:
    outcome = await forge_kit.enqueue(shop.end.request("error"))
    with pytest.raises(ValueError, match="no such order"):
        await forge_kit.drain(reraise=True)
    [job] = (await forge_kit.storage.jobs.get([outcome.job_id])).values()
    assert job.status is JobStatus.FAILED


async def test_more_than_allowed_is_an_error_that_names_the_jobs(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.chain.request(1_000))
    with pytest.raises(TooManyRuns, match=r"run 10 jobs, and shop\.chain .* is due too") as raised:
        await forge_kit.drain(at_most=10)
    assert len(raised.value.drained) == 10
    # The job that was too many is as before.
    [job] = await forge_kit.assert_enqueued(shop.chain, status="pending", count=1)
    assert job.attempt == 0


async def test_a_drain_of_exactly_as_many_is_none(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.chain.request(9))
    assert len(await forge_kit.drain(at_most=10)) == 10


async def test_only_the_queues_that_are_named(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.split.request([1]))
    assert [run.queue for run in await forge_kit.drain(queues="splits")] == ["splits"]
    assert [run.queue for run in await forge_kit.drain(queues=["mail", "splits"])] == ["mail"]


async def test_nothing_is_left_of_a_drain(forge_kit: Kit) -> None:
    assert len(await forge_kit.drain()) == 0
    await forge_kit.enqueue(shop.pack.request(shop.Order(1)))
    await forge_kit.drain()
    assert await forge_kit.storage.procs.pods() == []


async def test_the_timeout_of_a_job_holds(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.wait_long.request())
    [run] = await forge_kit.drain()
    assert run.cause is Cause.TIMED_OUT


def test_without_a_loop(forge_kit: Kit) -> None:
    forge_kit.sync.enqueue(shop.split.request([1, 2]))
    assert forge_kit.sync.drain().counts == {"done": 3}
    assert len(forge_kit.sync.assert_enqueued(shop.send_receipt, status="done")) == 2


async def test_hooks_run_in_a_drain_with_the_end_that_is_stored(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.restock.request())
    [run] = await forge_kit.drain()
    assert (run.status, run.delay) == (JobStatus.FAILED, shop.heard.pop().retry_in)
    assert shop.heard == []


async def test_a_run_inline_has_no_end_to_store_and_so_no_hooks(forge_kit: Kit) -> None:
    with pytest.raises(LookupError):
        await forge_kit.run_inline(shop.restock)
    assert shop.heard == []


async def test_a_chain_runs_to_its_end(forge_kit: Kit) -> None:
    outcome = await forge_kit.enqueue(shop.pages.request(last=5))

    drained = await forge_kit.drain()

    assert [run.status for run in drained] == [JobStatus.PENDING] * 4 + [JobStatus.DONE]
    assert {run.job_id for run in drained} == {outcome.job_id}
    assert drained[-1].result == '"5 pages in 5"'


async def test_a_chain_without_end_is_an_error_that_names_it(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.pages.request(last=10**9))
    with pytest.raises(TooManyRuns, match=r"run 7 jobs, and shop\.pages .*begins again at once"):
        await forge_kit.drain(at_most=7)


async def test_an_occurrence_of_later_waits_for_its_time(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.pages.request(after=60))
    assert len(await forge_kit.drain()) == 1
    for _ in range(2):
        await forge_kit.advance(seconds=60)
        assert len(await forge_kit.drain()) == 1
    await forge_kit.assert_enqueued(shop.pages, status="done", count=1)


async def test_a_letter_of_a_dead_job_is_read_by_the_same_drain(forge_kit: Kit) -> None:
    await forge_kit.storage.config.set_queue("default", QueueChange(dead_letter="broken"))
    await forge_kit.enqueue(shop.end.request("dead"))

    drained = await forge_kit.drain()

    assert [(run.kind, run.status) for run in drained] == [
        ("shop.ends", JobStatus.DEAD),
        (DEAD_LETTER_KIND, JobStatus.DONE),
    ]
    assert drained[1].result == '"shop.ends rejected"'
