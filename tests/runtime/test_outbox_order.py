"""Jobs of a sequence come out of an outbox in their order, and delay no others."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.clients.outbox.relay import OutboxReport
from forge_jobs.clock import ManualClock
from forge_jobs.errors import Locked, StorageRefused
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from tests.support.backends import lent
from tests.support.outboxes import PAIRS, Pair, pair_of

pytestmark = pytest.mark.anyio

PLAIN = EnqueueRequest("mail.send", {}, queue="mail")
IN_LINE = PLAIN.options(sequence_key="order:7")


@pytest.fixture(params=PAIRS, ids="-to-".join)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two empty stores."""
    async with pair_of(request.param[0], request.param[1], tmp_path) as made:
        yield made


async def follow_each_other(pair: Pair, line: Sequence[JobId]) -> bool:
    kin = await pair.there.jobs.kin(line)
    before = [[each.id for each in kin[job_id].parents] for job_id in line[1:]]
    return before == [[job_id] for job_id in line[:-1]]


async def test_a_sequence_that_a_caller_has_locked_delays_no_other_and_keeps_its_order(
    tmp_path: Path,
) -> None:
    async with pair_of("sqlite", "postgres", tmp_path) as pair:
        # More than may be refused in a row.
        ids = await pair.write([*[IN_LINE] * 25, *[PLAIN] * 4])
        clock = ManualClock()
        outbox = pair.outbox(clock=clock)
        async with (
            lent("postgres", tmp_path / "there", commits=True) as connection,
            JobClient(pair.there) as client,
        ):
            await client.enqueue(PLAIN)
            first = await client.enqueue(IN_LINE, connection=connection)
            for relayed in (4, 0):
                report = await outbox.relay_once()
                assert (report.relayed, report.set_aside) == (relayed, 0)
                clock.advance(60)
        assert (await outbox.relay_once()).relayed == 25
        assert await follow_each_other(pair, [first.job_id, *ids[:25]])


@pytest.mark.parametrize("batch", [1, 2, 500])
async def test_a_job_after_a_dropped_one_comes_after_the_holder_of_the_key_in_any_batch(
    pair: Pair, batch: int
) -> None:
    keyed = PLAIN.options(unique_key="octo")
    outbox = pair.outbox()
    async with JobClient(pair.there) as client:
        holder = (await client.enqueue(keyed)).job_id
    first, second = await pair.write([keyed, keyed])
    children = await pair.write(
        [PLAIN.options(after=[first]), PLAIN.options(after=[first, second])]
    )
    for _ in range(4 // batch + 1):
        await outbox._relay.relay_once(batch, batches=1)
    # Committed when the dropped ones are gone.
    children += await pair.write([PLAIN.options(after=[second])])

    assert await outbox.relay_once() == OutboxReport(1, 0)

    kin = await pair.there.jobs.kin(children)
    assert [[each.id for each in kin[child].parents] for child in children] == [[holder]] * 3


async def test_a_dropped_job_that_another_relay_stores_after_all_is_waited_for(pair: Pair) -> None:
    keyed = PLAIN.options(unique_key="octo")
    outbox, another = pair.outbox(), pair.outbox()
    async with JobClient(pair.there) as client:
        holder = (await client.enqueue(keyed)).job_id
        [dropped] = await pair.write([keyed])
        records = await outbox._records.read(10)
        await outbox.relay_once()
        await client.cancel(holder)
    # As of a relay that has read the record before.
    await another._relay._send(records, lambda: False)
    [child] = await pair.write([PLAIN.options(after=[dropped])])

    assert await outbox.relay_once() == OutboxReport(1, 0)

    [parent] = (await pair.there.jobs.kin([child]))[child].parents
    assert parent.id == dropped


@pytest.mark.parametrize("reason", [Locked, StorageRefused])
async def test_what_becomes_possible_within_a_pass_lets_no_job_of_a_sequence_overtake(
    pair: Pair, reason: type[Exception]
) -> None:
    ids = await pair.write([*[IN_LINE] * 3, PLAIN, *[IN_LINE] * 3])
    line = [*ids[:3], *ids[4:]]
    clock = ManualClock()
    outbox = pair.outbox(clock=clock)
    enqueue = pair.there.jobs.enqueue
    refused = {line[1]}

    async def refuses_once(jobs: list[NewJob]) -> list[EnqueueOutcome]:
        if refused.intersection(job.id for job in jobs):
            if len(jobs) == 1:
                refused.clear()
            raise reason("not now")
        return await enqueue(jobs)

    pair.there.jobs.enqueue = refuses_once  # type: ignore[method-assign,assignment]
    assert (await outbox.relay_once()).relayed == 2
    # Written down later, and so not put off yet.
    line += await pair.write([IN_LINE])
    assert (await outbox.relay_once()).relayed == 0
    clock.advance(60)
    assert (await outbox.relay_once()).relayed == 6
    assert await follow_each_other(pair, line)


async def test_a_sequence_waits_for_its_job_whose_parent_is_not_committed_yet(
    tmp_path: Path,
) -> None:
    async with pair_of("postgres", "redis", tmp_path) as pair:
        clock = ManualClock()
        outbox = pair.outbox(clock=clock)
        parent = new_job_id()
        line = await pair.write([IN_LINE.options(after=[parent]), IN_LINE])
        other = await pair.write([IN_LINE.options(sequence_key="order:8")])
        assert (await outbox.relay_once()).relayed == 1
        assert await pair.stored() == other
        await pair.write([PLAIN.options(id=parent)])
        assert (await outbox.relay_once()).relayed == 1
        clock.advance(60)
        assert (await outbox.relay_once()).relayed == 2
        assert line[0] in {each.id for each in (await pair.there.jobs.kin(line))[line[1]].parents}


async def test_a_sequence_waits_for_no_job_that_is_set_aside(pair: Pair) -> None:
    taken = new_job_id()
    async with JobClient(pair.there) as client:
        await client.enqueue(PLAIN.options(id=taken))
    line = await pair.write([IN_LINE, IN_LINE.options(id=taken), IN_LINE])
    report = await pair.outbox().relay_once()
    assert (report.relayed, report.set_aside) == (2, 1)
    assert await follow_each_other(pair, [line[0], line[2]])


async def test_a_sequence_waits_for_its_job_that_waits_for_a_unique_key(pair: Pair) -> None:
    keyed = PLAIN.options(unique_key="taken")
    await pair.write([keyed, keyed.options(sequence_key="order:7"), IN_LINE, PLAIN])
    outbox = pair.outbox()
    enqueue = pair.there.jobs.enqueue

    async def refuses_the_key(jobs: list[NewJob]) -> list[EnqueueOutcome]:
        if any(job.unique for job in jobs):
            raise Locked("an open transaction holds the unique key")
        return await enqueue(jobs)

    pair.there.jobs.enqueue = refuses_the_key  # type: ignore[method-assign,assignment]
    assert (await outbox.relay_once()).relayed == 1
