"""A sequence or a hand-over whose record is spoilt keeps no other job waiting."""

from functools import partial
from itertools import count
from pathlib import Path

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus, Line
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base import tables
from tests.support import factories
from tests.support.factories import QUEUE, claim, dead, done, finish, get_job, new_job, only
from tests.support.lines import claim_due, in_line, tell
from tests.support.spoiling import each_wrong_text, each_wrong_value, redis_commands, spoil_row

pytestmark = [pytest.mark.anyio, pytest.mark.daily("sqlite", "redis")]

ALL = ("sqlite", pytest.param("postgres", marks=pytest.mark.long), "redis")
KEYS = ("a", "b", "c")

register = partial(factories.register, lease_for=factories.DAY)


@pytest.mark.parametrize("backend", ALL)
async def test_the_last_job_of_a_sequence(storage: Storage, backend: str, tmp_path: Path) -> None:
    lease = await register(storage)
    numbers = count()
    [last] = await in_line(storage, 1, key="b")

    async def use() -> None:
        number = next(numbers)
        for key in ("a", "b", f"c{number}"):
            await storage.jobs.enqueue([new_job(sequence=Line(key)), new_job(sequence=Line(key))])
        for _ in range(2):
            found = await claim_due(storage, lease)
            assert len(found) >= 3
            for job in found:
                assert await finish(storage, job, done())
        assert not await claim_due(storage, lease)

    async def mend() -> None:
        """The next job of the sequence writes the record anew."""

    if backend == "redis":
        wrong = ("spoilt {", "", b"\xff\xfe", "1", last.lower())
        await each_wrong_text(tmp_path, QUEUE, "sequences", "b", wrong, use, mend)
    else:
        await storage.jobs.delete(only(last))
        await in_line(storage, 1, key="b")
        row = {"line": f"{QUEUE}\nb"}
        await each_wrong_value(backend, tmp_path, tables.sequences, row, use, mend)


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_parent_that_is_no_text(storage: Storage, backend: str, tmp_path: Path) -> None:
    lease = await register(storage)
    [_, child], [_, other] = await in_line(storage, 2, key="a"), await in_line(storage, 2, key="b")
    await spoil_row(backend, tmp_path, tables.edges, {"child_id": child}, {"parent_id": b"\xff"})
    assert "b'\\xff'" in (await JobClient(storage).explain(child)).text
    for job in await claim(storage, lease, limit=9):
        assert await finish(storage, job, done())
    assert [job.claim.job_id for job in await claim_due(storage, lease)] == [other]


@pytest.mark.parametrize("backend", ALL)
async def test_how_the_parent_ended(storage: Storage, backend: str, tmp_path: Path) -> None:
    lease = await register(storage)
    lines: dict[str, list[JobId]] = {key: await in_line(storage, 2, key=key) for key in KEYS}
    for job in await claim(storage, lease, limit=9):
        assert await finish(storage, job, done())
    parent, child = lines["b"]
    for wrong in ("spoilt", "pending"):
        if backend == "redis":
            listed = ("ZRANGE", "handovers", 0, -1)
            [records] = await redis_commands(backend, tmp_path, QUEUE, listed)
            [stored] = [each.decode() for each in records if parent in each.decode()]
            other = f"{stored.split()[0]} {parent} {wrong}"
            await redis_commands(
                backend,
                tmp_path,
                QUEUE,
                ("ZREM", "handovers", stored),
                ("ZADD", "handovers", 1, other),
            )
        else:
            row = {"child_id": child}
            await spoil_row(backend, tmp_path, tables.handovers, row, {"parent_status": wrong})
        news = {each.child_id: each.parent_status for each in await storage.jobs.handovers(9)}
        assert news == {
            ids[1]: JobStatus.DEAD if key == "b" else JobStatus.DONE for key, ids in lines.items()
        }
    await tell(storage)
    found = await claim(storage, lease, limit=9)
    assert {job.claim.job_id for job in found} == {lines["a"][1], lines["c"][1]}
    assert (await get_job(storage, child)).status is JobStatus.BLOCKED
    await storage.jobs.release_held(only(child))
    [freed] = await claim(storage, lease, limit=9)
    assert freed.claim.job_id == child


@pytest.mark.parametrize("backend", ALL)
async def test_when_a_job_of_a_sequence_ended(
    storage: Storage, backend: str, tmp_path: Path
) -> None:
    lease = await register(storage)
    lines: dict[str, list[JobId]] = {}
    for key in KEYS:
        jobs = [new_job(sequence=Line(key, rule)) for rule in ("wait", "skip", "wait")]
        await storage.jobs.enqueue(jobs)
        lines[key] = [job.id for job in jobs]
    for job in await claim(storage, lease, limit=9):
        assert await finish(storage, job, dead())
    head = lines["b"][0]
    if backend == "redis":
        spoilt = ("HSET", f"j:{head}", "finished", "spoilt {")
        await redis_commands(backend, tmp_path, QUEUE, spoilt)
    else:
        wrong = "spoilt {" if backend == "sqlite" else None
        await spoil_row(backend, tmp_path, tables.jobs, {"id": head}, {"finished_at": wrong})
    await storage.jobs.cancel(only(*(ids[1] for ids in lines.values())))
    found = await claim_due(storage, lease)
    assert {job.claim.job_id for job in found} == {ids[2] for ids in lines.values()}
