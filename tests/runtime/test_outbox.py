"""An outbox: jobs of a transaction in one database reach the queues of another store, once."""

import json
import logging
import random
from collections.abc import AsyncIterator, Generator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import anyio
import pytest

from forge_jobs import (
    EnqueueRequest,
    HandlerRegistry,
    InvalidInput,
    JobClient,
    Outbox,
    open_storage,
)
from forge_jobs.clients.outbox.relay import OutboxReport
from forge_jobs.clock import ManualClock
from forge_jobs.errors import Locked, StorageRefused, Unavailable
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import EnqueueOutcome, Hold, JobStatus, NewJob
from forge_jobs.model.letters.outbox import OutboxState
from forge_jobs.model.strikes import Effect, StrikeRule
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.runtime.passes.outbox import OutboxLoop, measure_all
from forge_jobs.storage.protocols import JobStore
from tests.migrations.catalog import query
from tests.support.backends import lent
from tests.support.outboxes import PAIRS, Pair, pair_of
from tests.support.points import FailingPoint, armed
from tests.support.proxy import proxy as proxy_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(params=PAIRS, ids="-to-".join)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two empty stores."""
    async with pair_of(request.param[0], request.param[1], tmp_path) as made:
        yield made


async def a_minute_later(pair: Pair) -> None:
    await query(
        pair.here_url, "UPDATE forge_outbox SET written_at = written_at - 61000000 RETURNING id"
    )


def some(count: int, **payload: object) -> list[EnqueueRequest]:
    return [EnqueueRequest("mail.send", {"n": n, **payload}, queue="mail") for n in range(count)]


async def test_what_commits_is_stored_once_in_order_and_what_rolls_back_never(pair: Pair) -> None:
    outbox = pair.outbox()
    await pair.write(some(3), commits=False)
    ids = [*await pair.write(some(3)), *await pair.write(some(2))]

    assert await pair.stored() == []
    assert [each.job_id for each in await outbox.records()] == ids
    assert (await outbox.state()).waiting == 5
    assert (await outbox.relay_once()).relayed == 5
    assert (await outbox.relay_once()).relayed == 0

    assert await pair.stored() == sorted(ids)
    found = await pair.there.jobs.get(ids)
    assert [found[each].payload for each in ids] == [f'{{"n":{n}}}' for n in (0, 1, 2, 0, 1)]
    state = await outbox.state()
    assert (state.waiting, state.set_aside, state.oldest) == (0, 0, None)
    assert await query(pair.here_url, "SELECT id FROM forge_jobs") == []


async def test_batches_go_in_the_order_of_the_records(pair: Pair) -> None:
    ids = await pair.write(some(7))
    asked: list[str] = []
    enqueue = pair.there.jobs.enqueue

    async def noted(jobs: list[NewJob]) -> list[EnqueueOutcome]:
        asked.extend(job.id for job in jobs)
        return await enqueue(jobs)

    pair.there.jobs.enqueue = noted  # type: ignore[method-assign,assignment]
    first = await pair.outbox()._relay.relay_once(batch=3, batches=2)
    assert first == OutboxReport(6, 0, more=True)
    assert await pair.outbox()._relay.relay_once(batch=3) == OutboxReport(1, 0)
    assert asked == ids


async def test_one_refused_job_leaves_the_order_of_the_others(pair: Pair) -> None:
    ids = await pair.write(some(9))
    enqueue, stored = pair.there.jobs.enqueue, list[str]()

    async def noted(jobs: list[NewJob]) -> list[EnqueueOutcome]:
        if any(job.id == ids[5] for job in jobs):
            raise InvalidInput("payload", "is too large", "give less")
        stored.extend(job.id for job in jobs)
        return await enqueue(jobs)

    pair.there.jobs.enqueue = noted  # type: ignore[method-assign,assignment]
    assert (await pair.outbox().relay_once()).relayed == 8
    assert stored == [each for each in ids if each != ids[5]]
    [record] = await pair.outbox().records()
    assert "is too large" in record.problem


async def test_a_lost_reply_of_a_step_doubles_nothing(pair: Pair) -> None:
    ids = await pair.write(some(3))
    outbox = pair.outbox()
    for point in ("outbox:stored", "outbox:read", "outbox:committed"):
        with armed(point, FailingPoint(1)), pytest.raises(Unavailable):
            await outbox.relay_once()
        ids += await pair.write(some(1))
    await outbox.relay_once()
    assert await pair.stored() == sorted(ids)
    assert await outbox.records() == []


@pytest.mark.parametrize("spoil", ["job = '{'", "job = replace(job, '\"mail\"', '\"a,b\"')"])
async def test_one_spoilt_record_among_thirty_is_set_aside_and_explained(
    pair: Pair, spoil: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await pair.write(some(31))
    bad = ids.pop(11)
    await query(
        pair.here_url, f"UPDATE forge_outbox SET {spoil} WHERE job_id = '{bad}' RETURNING id"
    )
    outbox = pair.outbox()
    report = await outbox.relay_once()

    assert (report.relayed, report.set_aside) == (30, 1)
    assert await pair.stored() == sorted(ids)
    [record] = await outbox.records()
    assert (record.job_id, record.queue) == (bad, "mail")
    assert "cannot be read" in record.problem
    assert "is set aside until" in caplog.text
    assert (await outbox.state()).set_aside == 1
    assert (await outbox.relay_once()).set_aside == 0


@pytest.mark.parametrize(
    ("of", "value"),
    [("run_at", "2026-01-01T00:00:00"), ("priority", 2**70), ("delay", "P999999999D")],
)
async def test_values_that_no_store_can_take_stop_no_other_record(
    pair: Pair, of: str, value: object
) -> None:
    ids = await pair.write(some(7))
    for bad in (ids.pop(5), ids.pop(3)):
        [[text]] = await query(
            pair.here_url, f"SELECT job FROM forge_outbox WHERE job_id = '{bad}'"
        )
        spoilt = json.dumps({**json.loads(str(text)), of: value})
        await query(
            pair.here_url,
            f"UPDATE forge_outbox SET job = '{spoilt}' WHERE job_id = '{bad}' RETURNING id",
        )
    outbox = pair.outbox()
    await outbox.relay_once()

    stored = await pair.stored()
    assert set(ids) <= set(stored)
    state = await outbox.state()
    # A store may take a delay of three million years.
    assert (state.waiting, state.set_aside + len(stored)) == (0, 7)
    assert all(record.problem for record in await outbox.records())


async def test_a_conflict_is_set_aside_then_retried_or_discarded(pair: Pair) -> None:
    taken = new_job_id()
    async with JobClient(pair.there) as client:
        await client.enqueue(EnqueueRequest("mail.send", {"n": 99}, queue="mail", id=taken))
    mine = EnqueueRequest("mail.send", {"n": 1}, queue="mail", id=taken)
    outbox = pair.outbox()
    good = await pair.write([*some(3), mine, *some(3)])
    report = await outbox.relay_once()
    assert (report.relayed, report.set_aside) == (6, 1)
    assert await pair.stored() == sorted(good)
    [record] = await outbox.records()
    assert record.problem.startswith("Conflict: ")
    assert await outbox.relay_once() == OutboxReport(0, 0)

    assert await outbox.retry(new_job_id()) == []
    assert await outbox.retry() == [taken]
    assert (await outbox.relay_once()).set_aside == 1
    async with JobClient(pair.there) as client:
        await client.delete(taken)
    assert await outbox.retry(taken) == [taken]
    assert (await outbox.relay_once()).relayed == 1

    other = EnqueueRequest("mail.send", {"n": 2}, queue="mail", id=taken)
    await pair.write([other])
    await outbox.relay_once()
    assert await outbox.discard() == []
    assert await outbox.discard(taken) == [taken]
    assert await outbox.records() == []


async def test_a_destination_that_refuses_everything_sets_nothing_aside(pair: Pair) -> None:
    ids = await pair.write(some(30))
    outbox = pair.outbox()
    enqueue = pair.there.jobs.enqueue
    bad = {ids[4]}

    async def refuses(jobs: list[NewJob]) -> list[EnqueueOutcome]:
        if bad.intersection(job.id for job in jobs):
            raise StorageRefused("no memory is left")
        return await enqueue(jobs)

    pair.there.jobs.enqueue = refuses  # type: ignore[method-assign,assignment]
    report = await outbox.relay_once()
    assert (report.relayed, report.set_aside) == (29, 0)
    bad |= set(await pair.write(some(10)))
    with pytest.raises(StorageRefused):
        await pair.outbox().relay_once()
    assert (await outbox.state()).waiting == 11
    bad.clear()
    assert (await pair.outbox().relay_once()).relayed == 11
    assert len(await pair.stored()) == 40


async def test_jobs_after_one_that_is_put_off_are_put_off_with_it(pair: Pair) -> None:
    first, second, third = (new_job_id() for _ in range(3))
    wanted = [
        EnqueueRequest("mail.send", {}, queue="mail", id=each, after=after)
        for each, after in ((first, []), (second, [first]), (third, [second]))
    ]
    await pair.write([*wanted, *some(1)])
    # Older than a job may be that comes after one whose transaction is open.
    await a_minute_later(pair)
    clock = ManualClock()
    outbox = pair.outbox(clock=clock)
    enqueue = pair.there.jobs.enqueue
    locked = {first}

    async def takes_others(jobs: list[NewJob]) -> list[EnqueueOutcome]:
        if locked.intersection(job.id for job in jobs):
            raise Locked("a caller's open transaction holds the unique key")
        return await enqueue(jobs)

    pair.there.jobs.enqueue = takes_others  # type: ignore[method-assign,assignment]
    for relayed in (1, 0):
        report = await outbox.relay_once()
        assert (report.relayed, report.set_aside) == (relayed, 0)
        clock.advance(60)
    locked.clear()
    assert (await outbox.relay_once()).relayed == 3
    assert set(await pair.stored()) >= {first, second, third}


async def test_a_job_after_one_that_is_not_committed_yet_waits_for_the_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair_of("postgres", "redis", tmp_path) as pair:
        clock = ManualClock()
        outbox = pair.outbox(clock=clock)
        [plain] = some(1)
        async with lent("postgres", pair.folder, commits=True) as connection:
            first = await outbox.enqueue(connection, plain)
            later = await pair.write([plain.options(after=[first.job_id]), plain])
            for relayed in (1, 0):
                report = await outbox.relay_once()
                assert (report.relayed, report.set_aside) == (relayed, 0)
                clock.advance(20)
        assert "tried again with growing pauses" in caplog.text
        assert (await outbox.relay_once()).relayed == 2
        assert await pair.stored() == sorted([first.job_id, *later])


async def test_a_job_after_one_that_never_comes_is_set_aside_in_a_minute(pair: Pair) -> None:
    clock = ManualClock()
    outbox = pair.outbox(clock=clock)
    [plain] = some(1)
    [lost, _] = await pair.write([plain.options(after=[new_job_id()]), plain])
    assert await outbox.relay_once() == OutboxReport(1, 0)
    clock.advance(20)
    await a_minute_later(pair)
    assert await outbox.relay_once() == OutboxReport(0, 1)
    [record] = await outbox.records()
    assert record.job_id == lost
    assert record.problem.startswith("NotFound: ")


async def test_a_clock_that_was_set_back_lengthens_that_minute_by_nothing(pair: Pair) -> None:
    clock = ManualClock()
    outbox = pair.outbox(clock=clock)
    [plain] = some(1)
    await pair.write([plain.options(after=[new_job_id()])])
    ahead = "UPDATE forge_outbox SET written_at = written_at + 32400000000 RETURNING id"
    await query(pair.here_url, ahead)
    assert await outbox.relay_once() == OutboxReport(0, 0)
    clock.advance(59)
    assert await outbox.relay_once() == OutboxReport(0, 0)
    clock.advance(60)
    assert await outbox.relay_once() == OutboxReport(0, 1)


async def test_of_many_jobs_after_ones_that_never_come_few_are_sent_again(pair: Pair) -> None:
    [plain] = some(1)
    await pair.write([*[plain.options(after=[new_job_id()])] * 105, plain])
    outbox = pair.outbox()
    assert await outbox.relay_once() == OutboxReport(1, 5)
    assert await outbox.state() == OutboxState(waiting=100, set_aside=5, oldest=ANY)


@pytest.mark.parametrize("time", ["'abc'", "1.5", "x'ff'", str(-(2**63)), str(2**63 - 1)])
async def test_a_time_that_an_edit_has_spoilt_stops_no_record(pair: Pair, time: str) -> None:
    if pair.backend == "postgres" and not time.lstrip("-").isdecimal():
        time = "0"  # PostgreSQL takes numbers alone
    ids = await pair.write(some(3))
    await query(
        pair.here_url,
        f"UPDATE forge_outbox SET written_at = {time} WHERE job_id = '{ids[1]}' RETURNING id",
    )
    outbox = pair.outbox()
    gauges = OutboxLoop("outbox", outbox, clock=ManualClock(), rng=random.Random(1))
    [gauge] = await measure_all([gauges], ManualClock().now())
    assert gauge.waiting == len(await outbox.records()) == 3
    assert (await outbox.relay_once()).relayed == 3
    assert await pair.stored() == sorted(ids)


async def test_a_key_that_a_caller_has_locked_delays_no_other_job(tmp_path: Path) -> None:
    async with pair_of("sqlite", "postgres", tmp_path) as pair:
        [plain] = some(1)
        keyed = plain.options(unique_key="taken")
        await pair.write([*[keyed] * 3, *[plain] * 4])
        clock = ManualClock()
        outbox = pair.outbox(clock=clock)
        async with lent("postgres", tmp_path / "there") as connection, JobClient(pair.there) as one:
            await one.enqueue(plain)
            await one.enqueue(keyed, connection=connection)
            for relayed in (4, 0):
                report = await outbox.relay_once()
                assert (report.relayed, report.set_aside) == (relayed, 0)
                clock.advance(60)
        assert (await outbox.relay_once()).relayed == 3
        assert len(await pair.stored()) == 6


async def test_the_age_counts_toward_a_delay_and_texts_stay_encrypted(pair: Pair) -> None:
    secret = Encryption(Encryption.new_key())
    outbox = pair.outbox(encryption=secret)
    request = EnqueueRequest("mail.send", {"to": "grace"}, queue="mail", delay=timedelta(hours=2))
    [late] = await pair.write([request], outbox)
    update = "UPDATE forge_outbox SET written_at = written_at - 3600000000 RETURNING job"
    [(text,)] = await query(pair.here_url, update)
    assert "grace" not in str(text)
    await outbox.relay_once()
    job = (await pair.there.jobs.get([late]))[late]
    wait = job.due_at - job.enqueued_at
    assert timedelta(minutes=50) < wait <= timedelta(hours=1)
    client = JobClient(pair.there, encryption=secret)
    assert client.decrypted(job).payload == '{"to":"grace"}'
    await client.aclose()


async def test_middleware_of_an_enqueue_is_called_and_wrong_values_write_nothing(
    pair: Pair,
) -> None:
    seen: list[str] = []

    def note(request: EnqueueRequest) -> Generator[None, object, None]:
        seen.append(request.kind)
        yield

    handlers = HandlerRegistry(enqueue_middleware=[note])
    outbox = pair.outbox(handlers)
    await pair.write(some(2), outbox)
    assert seen == ["mail.send"] * 2
    with pytest.raises(InvalidInput):
        await pair.write([*some(1), EnqueueRequest("mail.send", {}, queue="a,b")], outbox)
    assert (await outbox.state()).waiting == 2
    with pytest.raises(InvalidInput, match="connection"):
        await outbox.enqueue(None, *some(1))


async def test_a_transaction_that_commits_late_is_not_passed_over(tmp_path: Path) -> None:
    async with pair_of("postgres", "sqlite", tmp_path) as pair:
        outbox = pair.outbox()
        async with lent("postgres", pair.folder, commits=True) as connection:
            late = await outbox.enqueue(connection, *some(1))
            [early] = await pair.write(some(1))
            assert (await outbox.relay_once()).relayed == 1
            assert await pair.stored() == [early]
        assert (await outbox.relay_once()).relayed == 1
        assert await pair.stored() == sorted([early, late.job_id])


async def test_a_destination_that_is_away_delays_only_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with pair_of("postgres", "redis", tmp_path) as pair:
        with proxy_of(pair.there_url) as proxy:
            (tmp_path / "other").mkdir()
            file = f"sqlite:///{tmp_path / 'other' / 'jobs.db'}"
            async with await open_storage(proxy.url) as away, await open_storage(file) as near:
                first, second = Outbox(pair.here, away), Outbox(pair.here, near, name="near")
                proxy.refuse()
                ids = await pair.write(some(5), first)
                others = await pair.write(some(5), second)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(first.run)
                    tasks.start_soon(second.run)
                    await wait_until(
                        lambda: _has(near.jobs, others), description="the other has all"
                    )
                    await wait_until(
                        lambda: _logged(caplog, "is not relayed now"), description="the log says so"
                    )
                    assert (await first.state()).waiting == 5
                    assert await pair.stored() == []
                    proxy.heal()
                    await wait_until(
                        lambda: _has(pair.there.jobs, ids), description="all have come", timeout=100
                    )
                    await wait_until(
                        lambda: _logged(caplog, "is relayed again"), description="the log says so"
                    )
                    tasks.cancel_scope.cancel()
                assert await pair.stored() == sorted(ids)
    told = [each for each in caplog.records if "is not relayed now" in each.message]
    assert len(told) == 1
    assert told[0].levelno == logging.WARNING


async def _has(jobs: JobStore, ids: Sequence[JobId]) -> bool:
    return set(await jobs.get(ids)) == set(ids)


async def _logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


@pytest.mark.parametrize("limit", [0, -1, "5", None, 1.5, 10_001])
async def test_a_limit_that_is_no_number_of_records_is_refused_by_name(
    tmp_path: Path, limit: Any
) -> None:
    async with pair_of("sqlite", "redis", tmp_path) as pair:
        with pytest.raises(InvalidInput, match=r"limit: .*give 1 to 10000"):
            await pair.outbox().records(limit)


async def test_a_store_without_transactions_is_refused(tmp_path: Path) -> None:
    async with pair_of("sqlite", "redis", tmp_path) as pair:
        with pytest.raises(InvalidInput, match="give a SQLite or PostgreSQL"):
            Outbox(pair.there, pair.here)


async def test_what_is_relayed_is_judged_by_the_strikes_of_the_destination(pair: Pair) -> None:
    handlers = HandlerRegistry(encryption=Encryption([Encryption.new_key()]))

    @handlers.job("pay", queue="bank")
    async def pay(amount: int) -> None: ...

    config, jobs = pair.there.config, pair.there.jobs
    await config.put_strike("no mail", StrikeRule(kind="mail.send"), "ada")
    await config.put_strike("fraud", StrikeRule(where="amount == 13", effect=Effect.CANCEL), "ada")
    outbox = pair.outbox(handlers)
    wanted = [*some(1), pay.request(13), pay.request(7)]
    ids = await pair.write(wanted, outbox)
    assert (await outbox.relay_once()).relayed == 3
    found = await jobs.get(ids)
    mail, fraud, fine = (found[each] for each in ids)
    assert (mail.hold, mail.struck_by, mail.claimed_at) == (Hold.STRUCK, "no mail", None)
    assert (fraud.status, fraud.struck_by) == (JobStatus.CANCELLED, "fraud")
    assert fraud.errors[-1].message == "the strike 'fraud' of ada cancels it"
    assert (fine.status, fine.hold) == (JobStatus.PENDING, None)
    # Lifted before the relay reads again: what it holds, it holds by what is stored now.
    await config.lift_strike("no mail")
    [later] = await pair.write(some(1), outbox)
    await outbox.relay_once()
    assert (await jobs.get([later]))[later].hold is None


async def test_a_relay_reads_strikes_once_for_many_records_and_goes_on_without(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[int] = []
    config: Any = type(pair.there.config)

    async def refuses(self: Any) -> Any:
        readings.append(1)
        raise StorageRefused("this role may not read strikes")

    monkeypatch.setattr(config, "strikes", refuses)
    outbox = pair.outbox()
    for _ in range(3):
        await pair.write(some(2), outbox)
        assert (await outbox.relay_once()).relayed == 2
    assert len(readings) == 1
    assert len(await pair.stored()) == 6
