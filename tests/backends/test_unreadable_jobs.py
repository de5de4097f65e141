"""A job whose record is spoilt, or of another release, harms no job but itself."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Hold, JobStatus
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.model.transitions import Demand, Finalization, Revival
from forge_jobs.policy.explanations import Reason
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.tables import jobs
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    claim,
    crashed,
    dead,
    done,
    error,
    failed,
    finish,
    get_job,
    held,
    new_job,
    only,
    register,
    snoozed,
)
from tests.support.spoiling import redis_commands, spoil_row, wrong_values

pytestmark = [pytest.mark.anyio, pytest.mark.daily("sqlite", "redis")]

ALL = ("sqlite", "postgres", "redis")
EACH = pytest.mark.parametrize("each", ["field", pytest.param("value", marks=pytest.mark.long)])
MANY = 30
_IN_ONE_CALL = 10


async def spoil(
    backend: str, folder: Path, queue: str, job_id: str, field: str, value: Any
) -> None:
    """Write into a field of a job."""
    if backend == "redis":
        await redis_commands(backend, folder, queue, ("HSET", f"j:{job_id}", field, value))
    else:
        await spoil_row(backend, folder, jobs, {"id": job_id}, {field: value})


async def wrong_fields(
    backend: str, folder: Path, queue: str, job_id: str, each: str
) -> list[tuple[str, Any]]:
    """Return every field of a job with each wrong value for it, or with one of them."""
    every = await _wrong_values(backend, folder, queue, job_id)
    if each == "value":
        return [(field, value) for field, values in every.items() for value in values]
    return [(field, values[n % len(values)]) for n, (field, values) in enumerate(every.items())]


async def _wrong_values(
    backend: str, folder: Path, queue: str, job_id: str
) -> dict[str, Sequence[Any]]:
    if backend != "redis":
        columns = [column for column in jobs.columns if column.name != "id"]
        return {column.name: wrong_values(backend, column) for column in columns}
    [flat] = await redis_commands(backend, folder, queue, ("HGETALL", f"j:{job_id}"))
    stored = {name.decode() for name in flat}
    rare = {"attempt", "crashes", "snoozes", "expires", "hold", "tags", "settled", "snoozed"}
    values = ("spoilt {", "", "1.5", str(2**62), b"\xff\xfe")
    return dict.fromkeys(sorted(stored | rare), values)


async def store(storage: Storage, queue: str, number: int = MANY) -> list[JobId]:
    requests = [new_job(queue=queue, tags=("a", "b"), metadata='{"a":"b"}') for _ in range(number)]
    return [outcome.job_id for outcome in await storage.jobs.enqueue(requests)]


async def run_all(storage: Storage, lease: PodLease, queue: str) -> set[JobId]:
    """Run everything that can be claimed, as a pod does, and return the jobs."""
    ran: set[JobId] = set()
    ends: Sequence[Finalization] = ()
    for _ in range(MANY):
        demand = Demand(
            worker_ids=("w",) * _IN_ONE_CALL, limit=_IN_ONE_CALL, kinds=frozenset({KIND})
        )
        exchange = await storage.jobs.exchange(queue, ends, demand, lease)
        assert all(exchange.settled)
        ran |= {one.claim.job_id for one in exchange.claimed}
        ends = [Finalization(one.claim, done()) for one in exchange.claimed]
        if not ends and exchange.next_due_in != timedelta(0):
            break
        await storage.jobs.heartbeat(lease, [], LEASE)
    return ran


@EACH
@pytest.mark.parametrize("backend", ALL)
async def test_a_field_of_one_job_among_thirty(
    storage: Storage, backend: str, tmp_path: Path, each: str
) -> None:
    [first] = await store(storage, "first", 1)
    fields = await wrong_fields(backend, tmp_path, "first", first, each)
    queues = [f"q{number}" for number in range(len(fields))]
    lease = await register(storage, queues=queues)
    wrong = []
    for queue, (field, value) in zip(queues, fields, strict=True):
        ids = await store(storage, queue)
        spoilt = ids[MANY // 2]
        others = {*ids} - {spoilt}
        await spoil(backend, tmp_path, queue, spoilt, field, value)
        try:
            assert others <= await run_all(storage, lease, queue)
            found = await storage.jobs.get(ids)
            assert {*found} == {*ids}
            assert {found[each].status for each in others} == {JobStatus.DONE}
            await storage.jobs.list(JobFilter(queues=(queue,)))
            listed = await storage.jobs.list(JobFilter(ids=tuple(ids)))
            assert {line.id for line in listed.jobs} == {*ids}
            await storage.jobs.counts([queue])
            await storage.procs.due_kinds([queue])
            await storage.procs.workers()
            await storage.jobs.stale_claims(LEASE, 10)
            await storage.jobs.requeue(JobFilter(ids=(spoilt,)))
            assert await run_all(storage, lease, queue) <= {spoilt}
            gone = await storage.jobs.delete(JobFilter(ids=tuple(ids)))
            assert others <= {*gone.changed}
            if found[spoilt].status is not JobStatus.IN_PROGRESS:
                assert gone.changed == tuple(sorted(ids)), gone.refused
        except Exception as error:
            wrong.append(f"{field}={value!r}: {type(error).__name__}: {str(error)[:200]}")
            await storage.jobs.delete(JobFilter(ids=tuple(ids)))
    assert not wrong, "\n".join([f"{len(wrong)} of {len(fields)}", *wrong])


@EACH
@pytest.mark.parametrize("backend", ALL)
async def test_a_field_of_one_claimed_job_among_thirty(
    storage: Storage, backend: str, tmp_path: Path, each: str
) -> None:
    [first] = await store(storage, "first", 1)
    fields = await wrong_fields(backend, tmp_path, "first", first, each)
    queues = [f"q{number}" for number in range(len(fields))]
    lease = await register(storage, queues=queues)
    wrong = []
    for queue, (field, value) in zip(queues, fields, strict=True):
        ids = await store(storage, queue)
        claimed = await claim(storage, lease, queue=queue, limit=MANY)
        spoilt = ids[MANY // 2]
        await spoil(backend, tmp_path, queue, spoilt, field, value)
        others = [one for one in claimed if one.claim.job_id != spoilt]
        try:
            await storage.jobs.record_start([one.claim for one in claimed])
            beat = await storage.jobs.heartbeat(lease, [held(one) for one in claimed], LEASE)
            assert all(beat.claims[one.claim] is ClaimState.HELD for one in others)
            await storage.jobs.stale_claims(timedelta(0), MANY)
            await storage.procs.workers()
            await storage.procs.pods()
            ends = [done("1"), failed(error=error()), dead(error=error()), snoozed()]
            pairs = [Finalization(one.claim, ends[n % 4]) for n, one in enumerate(claimed)]
            settled = await storage.jobs.finalize(pairs)
            assert all(
                did for did, one in zip(settled, claimed, strict=True) if one.claim.job_id != spoilt
            )
            await storage.jobs.list(JobFilter(queues=(queue,)))
            assert {*await storage.jobs.get(ids)} == {*ids}
            await storage.jobs.requeue(JobFilter(ids=tuple(ids)))
            claimed = await claim(storage, lease, queue=queue, limit=MANY)
            await storage.jobs.release([one.claim for one in claimed])
        except Exception as wrong_one:
            wrong.append(f"{field}={value!r}: {type(wrong_one).__name__}: {str(wrong_one)[:200]}")
            await storage.jobs.delete(JobFilter(ids=tuple(ids)))
    assert not wrong, "\n".join([f"{len(wrong)} of {len(fields)}", *wrong])


async def spoil_tags(backend: str, folder: Path, queue: str, job_id: str) -> None:
    """Leave nothing in the record of which the tags can be read."""
    field, value = ("doc", "{") if backend == "redis" else ("tags", "{")
    await spoil(backend, folder, queue, job_id, field, value)


async def mend_tags(backend: str, folder: Path, queue: str, job_id: str) -> None:
    """Undo :func:`spoil_tags`."""
    doc = '[5,null,true,"{}",""]'
    field, value = ("doc", doc) if backend == "redis" else ("tags", "[]")
    await spoil(backend, folder, queue, job_id, field, value)


@pytest.mark.parametrize("backend", ALL)
async def test_it_is_put_on_hold_with_its_attempt_unused_and_says_why(
    storage: Storage, backend: str, tmp_path: Path
) -> None:
    lease = await register(storage)
    [spoilt, good] = await store(storage, QUEUE, 2)
    await spoil_tags(backend, tmp_path, QUEUE, spoilt)
    assert [one.claim.job_id for one in await claim(storage, lease, limit=2)] == [good]
    job = await get_job(storage, spoilt)
    assert (job.id, job.queue, job.kind, job.status) == (spoilt, QUEUE, KIND, JobStatus.PENDING)
    assert (job.hold, job.attempt) == (Hold.UNREADABLE, 0)
    assert job.unreadable.startswith("doc is '{'" if backend == "redis" else "tags is '{'")
    [line] = (await storage.jobs.list(only(spoilt))).jobs
    assert (line.hold, line.unreadable) == (Hold.UNREADABLE, job.unreadable)
    assert (await storage.jobs.counts())[QUEUE].held == 1
    async with JobClient(storage) as client:
        told = await client.explain(spoilt)
    assert (told.reason, told.help) == (
        Reason.UNREADABLE,
        f"forge-jobs jobs requeue {spoilt}",
    )
    assert job.unreadable in told.text
    assert await claim(storage, lease, limit=2) == []


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("how", ["requeued", "a pod registers"])
async def test_it_is_tried_again(storage: Storage, backend: str, tmp_path: Path, how: str) -> None:
    lease = await register(storage)
    [spoilt] = await store(storage, QUEUE, 1)
    await spoil_tags(backend, tmp_path, QUEUE, spoilt)
    assert await claim(storage, lease) == []
    await mend_tags(backend, tmp_path, QUEUE, spoilt)
    assert await claim(storage, lease) == []
    if how == "requeued":
        assert (await storage.jobs.requeue(only(spoilt))).changed == (spoilt,)
    else:
        lease = await register(storage)
    [claimed] = await claim(storage, lease)
    assert (claimed.claim.job_id, claimed.attempt) == (spoilt, 1)
    assert await finish(storage, claimed, done())


@pytest.mark.parametrize("backend", ALL)
async def test_a_whole_claim_of_them_looks_again_at_once(
    storage: Storage, backend: str, tmp_path: Path
) -> None:
    lease = await register(storage)
    ids = await store(storage, QUEUE, 3)
    for each in ids[:2]:
        await spoil_tags(backend, tmp_path, QUEUE, each)
    demand = Demand(worker_ids=("w", "v"), limit=2, kinds=frozenset({KIND}))
    exchange = await storage.jobs.exchange(QUEUE, [], demand, lease)
    assert (exchange.claimed, exchange.next_due_in) == ((), timedelta(0))
    [claimed] = await claim(storage, lease)
    assert claimed.claim.job_id == ids[2]


@pytest.mark.parametrize("backend", ALL)
async def test_it_can_be_deleted(storage: Storage, backend: str, tmp_path: Path) -> None:
    lease = await register(storage)
    [spoilt] = await store(storage, QUEUE, 1)
    await spoil_tags(backend, tmp_path, QUEUE, spoilt)
    assert await claim(storage, lease) == []
    assert (await storage.jobs.delete(only(spoilt))).changed == (spoilt,)
    assert await storage.jobs.get([spoilt]) == {}


@pytest.mark.parametrize("backend", ["redis"])
@pytest.mark.parametrize("left", ["nothing", "a string", "no status"])
async def test_a_key_that_holds_no_job(
    storage: Storage, backend: str, tmp_path: Path, left: str
) -> None:
    lease = await register(storage)
    ids = await store(storage, QUEUE)
    spoilt, others = ids[3], {*ids} - {ids[3]}
    commands: dict[str, tuple[Any, ...]] = {
        "nothing": ("DEL", f"j:{spoilt}"),
        "a string": ("SET", f"j:{spoilt}", "spoilt"),
        "no status": ("HDEL", f"j:{spoilt}", "status", "token"),
    }
    await redis_commands(backend, tmp_path, QUEUE, commands[left])
    assert await run_all(storage, lease, QUEUE) == others
    assert (await storage.jobs.counts())[QUEUE].due == 0
    listed = (await storage.jobs.list(JobFilter(queues=(QUEUE,)))).jobs
    assert others <= {line.id for line in listed}
    found = await storage.jobs.get(ids)
    assert ({*found} == others) == (left == "nothing")
    if left != "nothing":
        assert "kind is missing" in found[spoilt].unreadable or left == "no status"
        assert (await storage.jobs.delete(only(spoilt))).changed == (spoilt,)
        assert {*await storage.jobs.get(ids)} == others
        assert (await storage.jobs.counts())[QUEUE].held == 0


@pytest.mark.parametrize("backend", ["redis"])
async def test_a_claimed_job_without_its_record_is_no_claim_any_more(
    storage: Storage, backend: str, tmp_path: Path
) -> None:
    lease = await register(storage)
    ids = await store(storage, QUEUE, 3)
    claimed = await claim(storage, lease, limit=3)
    await redis_commands(backend, tmp_path, QUEUE, ("DEL", f"j:{ids[0]}"))
    stale = await storage.jobs.stale_claims(timedelta(0), 10)
    revivals = [Revival(each.claim, crashed()) for each in stale]
    assert sorted(await storage.jobs.revive(revivals, timedelta(0))) == [False, True, True]
    assert len(await storage.jobs.stale_claims(timedelta(0), 10)) == 0
    [pod] = await storage.procs.pods()
    assert pod.in_progress == {}
    assert len(claimed) == 3
