"""A limit, a strike or the bucket of a key whose record is spoilt harms what it is about only."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from forge_jobs.clients.forecasts import explained
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import RateAsk, RateLimit
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.policy.explanations import Reason
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base import tables
from forge_jobs.storage.sql.config.tables import rate_keys
from tests.support import factories
from tests.support.factories import KIND, claim, done, finish, get_job, new_job
from tests.support.spoiling import (
    each_wrong_entry,
    each_wrong_text,
    each_wrong_value,
    redis_commands,
    spoil_row,
)

pytestmark = [pytest.mark.anyio, pytest.mark.daily("sqlite", "redis")]

ALL = ("sqlite", pytest.param("postgres", marks=pytest.mark.long), "redis")
QUEUES = ("a", "b", "c")
SPOILT = "b"
HOUR = timedelta(hours=1)
_FAR = 2**62

register = partial(factories.register, lease_for=factories.DAY)


async def _drained(storage: Storage, lease: PodLease, queue: str) -> list[int]:
    """Run all jobs of a queue, and return how many each claim brought."""
    counts = []
    while found := await claim(storage, lease, queue=queue, limit=20):
        counts.append(len(found))
        for job in found:
            assert await finish(storage, job, done())
    return counts


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("name", ["plain", "shared"])
async def test_a_limit(storage: Storage, backend: str, name: str, tmp_path: Path) -> None:
    limits = {"plain": 1, "shared": 1}
    for queue in QUEUES:
        await storage.config.ensure_limits(queue, limits, {"shared": 1})
    lease = await register(storage, queues=QUEUES)
    keys = [("", ""), *((limit, key) for limit in limits for key in ("k", "k", "l"))]

    async def use() -> None:
        await storage.jobs.cancel(JobFilter(statuses=(JobStatus.PENDING,)))
        listed = {(each.queue, each.name): each for each in await storage.config.limits()}
        none_run = "no job of the limit starts" in listed[SPOILT, name].unreadable
        for queue in QUEUES:
            requests = [new_job(queue=queue, limit_name=of, limit_key=key) for of, key in keys]
            await storage.jobs.enqueue(requests)
            ran = await _drained(storage, lease, queue)
            if queue == SPOILT:
                assert sum(ran) == (4 if none_run else 7), ran
            else:
                assert ran == [5, 2], (queue, ran)
        assert {*listed} == {(queue, limit) for queue in QUEUES for limit in limits}
        assert all(not each.unreadable for each in listed.values() if each.queue != SPOILT)
        await problems(storage)

    async def mend() -> None:
        await storage.config.ensure_limits(SPOILT, limits, {"shared": 1})
        share = 1 if name == "shared" else None
        await storage.config.set_limit(SPOILT, name, 2, share)
        listed = {(each.queue, each.name): each for each in await storage.config.limits()}
        mended = listed[SPOILT, name]
        assert (mended.at_most, mended.share, mended.unreadable) == (2, share, "")
        await _drained(storage, lease, SPOILT)
        requests = [new_job(queue=SPOILT, limit_name=name, limit_key="k") for _ in range(3)]
        await storage.jobs.enqueue(requests)
        assert await _drained(storage, lease, SPOILT) == [2, 1]

    if backend == "redis":
        wrong = ("spoilt {", "", "1.5", f"{_FAR}", b"\xff\xfe", "1/", "/1", "1/x", "1/0", "1/1/1")
        await each_wrong_text(tmp_path, SPOILT, "at_most", name, wrong, use, mend)
    else:
        key = {"queue": SPOILT, "name": name}
        await each_wrong_value(backend, tmp_path, tables.limits, key, use, mend)


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("number", [0, -1])
async def test_a_limit_below_one_lets_no_job_run_and_says_so(
    storage: Storage, backend: str, number: int, tmp_path: Path
) -> None:
    await storage.config.ensure_limits(SPOILT, {"x": 1})
    lease = await register(storage, queues=QUEUES)
    if backend == "redis":
        await redis_commands(backend, tmp_path, SPOILT, ("HSET", "at_most", "x", f"{number}"))
    else:
        key = {"queue": SPOILT, "name": "x"}
        await spoil_row(backend, tmp_path, tables.limits, key, {"at_most": number})
    [one, _] = await storage.jobs.enqueue(
        [new_job(queue=SPOILT, limit_name="x", limit_key="k"), new_job(queue=SPOILT)]
    )
    assert await _drained(storage, lease, SPOILT) == [1]
    told = await explained(storage, await get_job(storage, one.job_id))
    assert told.reason is Reason.LIMITED
    assert f"(at_most is {number}, so no job of the limit starts)" in told.text
    assert told.help == "forge-jobs limits set-concurrency b x 1"
    [limit] = await storage.config.limits()
    assert (limit.at_most, limit.unreadable) == (
        0,
        f"at_most is {number}, so no job of the limit starts",
    )
    await storage.config.set_limit(SPOILT, "x", 1)
    assert await _drained(storage, lease, SPOILT) == [1]


@pytest.mark.parametrize("backend", ALL)
async def test_a_strike(storage: Storage, backend: str, tmp_path: Path) -> None:
    lease = await register(storage, queues=QUEUES)
    for name in QUEUES:
        await storage.config.put_strike(name, StrikeRule(kind=f"kind.{name}"), "ada")

    async def use() -> None:
        listed = await storage.config.strikes()
        assert [each.name for each in listed] == [*QUEUES]
        assert all(not each.unreadable for each in listed if each.name != SPOILT)
        await storage.jobs.enqueue([new_job(queue="a")])
        assert await _drained(storage, lease, "a") == [1]
        await problems(storage)

    async def mend() -> None:
        await storage.config.put_strike(SPOILT, StrikeRule(kind=KIND), "ada")
        [found] = [each for each in await storage.config.strikes() if each.name == SPOILT]
        assert (found.rule.kind, found.unreadable) == (KIND, "")
        await storage.config.lift_strike(SPOILT)
        await storage.config.put_strike(SPOILT, StrikeRule(kind=KIND), "ada")

    if backend == "redis":
        rule = '{"kind":"x","effect":"hold"}'
        times: list[str | bytes] = [f"{each} {rule}" for each in ("x", _FAR, 10**40, -1, "")]
        wrong = ["spoilt {", "", "1.5 {}", b"\xff\xfe", "1796107811612768", b"\xff\xfe {}", *times]
        await each_wrong_text(tmp_path, "", "strikes", SPOILT, wrong, use, mend)
    else:
        await each_wrong_value(backend, tmp_path, tables.strikes, {"name": SPOILT}, use, mend)


@pytest.mark.parametrize("backend", ALL)
async def test_the_bucket_of_a_key(storage: Storage, backend: str, tmp_path: Path) -> None:
    await storage.config.set_rate_limit("s", RateLimit(1000, 1000))
    for key in QUEUES:
        await storage.config.take_or_turn([RateAsk("s", key)], HOUR)

    async def use() -> None:
        asks = [RateAsk("s", key) for key in QUEUES]
        found = dict(zip(QUEUES, await storage.config.take_or_turn(asks, HOUR), strict=True))
        assert all(each is not None for each in found.values())
        assert all(each.granted for key, each in found.items() if key != SPOILT and each)
        await storage.config.rate_limits()
        await problems(storage)

    async def mend() -> None:
        """An hour at most, and the bucket is like another."""

    if backend == "redis":
        await each_wrong_entry(backend, tmp_path, "", "rates", f"s\0{SPOILT}", use, mend)
    else:
        row = {"scope": "s", "key": SPOILT}
        await each_wrong_value(backend, tmp_path, rate_keys, row, use, mend)
