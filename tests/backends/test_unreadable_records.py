"""A queue, pod, schedule, rate limit, event or minute whose record is spoilt harms itself only."""

from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import Table

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import EPOCH
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import NotFound
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.processes import AllocationChange, PodGauges, PodLease, Slots
from forge_jobs.model.queues import CooldownPolicy, QueueChange, QueueSettings, RateLimit, Retention
from forge_jobs.model.retries import Exponential
from forge_jobs.model.schedules import Firing, ScheduleSpec
from forge_jobs.model.transitions import Finalization
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.reports import flush_reports
from forge_jobs.runtime.passes.cron import fire_due_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base import tables
from tests.support import factories
from tests.support.factories import KIND, SECOND, a_pod, claim, cleaned_up, done, new_job, only
from tests.support.spoiling import (
    each_wrong_entry,
    each_wrong_field,
    each_wrong_value,
    redis_commands,
    spoil_row,
)

pytestmark = [pytest.mark.anyio, pytest.mark.daily("sqlite", "redis")]

LEASE = factories.DAY
"""Values are tried one after the other, and not every pod beats meanwhile."""

register = partial(factories.register, lease_for=LEASE)

ALL = ("sqlite", pytest.param("postgres", marks=pytest.mark.long), "redis")
MANY = 11
SPOILT = MANY // 2
_QUEUES = tuple(f"q{number:02}" for number in range(MANY))
_OTHERS = tuple(name for name in _QUEUES if name != _QUEUES[SPOILT])
_NONE = timedelta(0)
_MEND = QueueChange(
    max_workers=7,
    cooldown=CooldownPolicy(base=SECOND),
    retention=Retention(done=_NONE),
    retry=Exponential(base=2.0),
)
_GAUGES = PodGauges()


def schedule(name: str, **overrides: Any) -> ScheduleSpec:
    return ScheduleSpec(
        **({"name": name, "queue": "fired", "kind": KIND, "expression": "@daily"} | overrides)
    )


async def mend_queue(storage: Storage, name: str) -> None:
    await storage.config.ensure_queue(name, QueueSettings())
    # What is shown of a setting that cannot be read is no reason not to write the same.
    defaults = QueueChange(max_workers=1, cooldown=CooldownPolicy(), retention=Retention())
    written = (await storage.config.set_queue(name, defaults)).unreadable
    assert not any(each in written for each in ("max_workers is", "cooldown is", "retention"))
    await storage.config.set_queue(name, _MEND)
    await storage.config.set_paused(name, False)
    await storage.config.clear_cooldown(name)
    [state] = [each for each in await storage.config.queues() if each.name == name]
    assert (state.unreadable, state.paused) == ("", False)
    assert state.settings.max_workers == _MEND.max_workers
    assert state.settings.retention == _MEND.retention


@pytest.mark.parametrize("backend", ALL)
async def test_a_queue(storage: Storage, backend: str, tmp_path: Path) -> None:
    spoilt = _QUEUES[SPOILT]
    lease = await register(storage, queues=_QUEUES)
    for name in _QUEUES:
        await storage.config.set_queue(name, _MEND)
    await storage.config.set_paused(spoilt, True)
    await storage.config.set_paused(spoilt, False)

    async def use() -> None:
        beat = await storage.jobs.heartbeat(lease, [], LEASE)
        assert beat.lease_held
        assert {*beat.queues} == {*_QUEUES}
        states = await storage.config.queues()
        assert {state.name for state in states} >= {*_QUEUES}
        assert {state.name for state in states if state.unreadable} <= {spoilt}
        read = {each.queue: each for each in await storage.procs.allocations()}
        assert {*read} >= {*_OTHERS}
        changes = [
            AllocationChange(
                queue=name,
                version=read[name].version,
                slots={lease.host_id: Slots(5, max(5, read[name].pods[lease.host_id].grant))},
            )
            for name in (*_OTHERS, spoilt)
            if name in read
        ]
        assert all((await storage.procs.allocate(changes))[: len(_OTHERS)])
        stored = await storage.jobs.enqueue([new_job(queue=name) for name in _QUEUES])
        await problems(storage)
        for outcome in stored:
            await JobClient(storage).explain(outcome.job_id)
        for name in (*_OTHERS[:3], spoilt):
            claimed = await claim(storage, lease, queue=name)
            ends = [Finalization(each.claim, done()) for each in claimed]
            assert all(await storage.jobs.finalize(ends))
            assert claimed or name == spoilt
        assert (await storage.jobs.counts()).keys() >= {*_QUEUES}
        await storage.procs.due_kinds(_QUEUES)
        await storage.procs.pods()
        await storage.procs.bring_back_leases()
        assert (await storage.cron.lead(lease.host_id, LEASE)).host_id == lease.host_id
        await cleaned_up(storage)
        await storage.jobs.delete(only(*(outcome.job_id for outcome in stored)))

    async def mend() -> None:
        await mend_queue(storage, spoilt)

    if backend == "redis":
        await each_wrong_field(backend, tmp_path, spoilt, "queue", use, mend)
    else:
        await each_wrong_value(backend, tmp_path, tables.queues, {"name": spoilt}, use, mend)


@pytest.mark.parametrize("backend", ALL)
async def test_a_pod(storage: Storage, backend: str, tmp_path: Path) -> None:
    queues = _QUEUES[:3]
    leases = [await register(storage, queues=queues) for _ in _QUEUES]
    for lease in leases:
        await storage.procs.record_gauges(lease, EPOCH, _GAUGES)
    spoilt = leases.pop(SPOILT)
    hosts = {lease.host_id for lease in leases}

    async def use() -> None:
        for lease in leases[:3]:
            beat = await storage.jobs.heartbeat(lease, [], LEASE)
            assert beat.lease_held
            assert {*beat.queues} == {*queues}
        pods = await storage.procs.pods()
        assert {pod.pod.host_id for pod in pods} == {*hosts, spoilt.host_id}
        assert all(not pod.unreadable for pod in pods if pod.pod.host_id != spoilt.host_id)
        assert {pod.host_id for pod in await storage.procs.live_pods()} >= hosts
        assert await storage.procs.routes() == {KIND: None}
        for each in await storage.procs.allocations():
            assert {*each.pods} >= hosts
        await storage.jobs.enqueue([new_job(queue=queues[0]), new_job(queue=queues[0], kind="x")])
        [claimed] = await claim(storage, leases[0], queue=queues[0])
        assert await storage.jobs.finalize([Finalization(claimed.claim, done())]) == [True]
        assert (await storage.cron.lead(leases[0].host_id, LEASE)).host_id == leases[0].host_id
        await storage.procs.bring_back_leases()
        assert not hosts & {*await storage.procs.drop_dead_pods(_NONE, 100)}
        await storage.procs.set_draining(spoilt)

    async def mend() -> None:
        nonlocal spoilt
        spoilt = await storage.procs.register(a_pod(host_id=spoilt.host_id, queues=queues), LEASE)
        await storage.procs.record_gauges(spoilt, EPOCH, _GAUGES)
        [pod] = [each for each in await storage.procs.pods() if each.pod.host_id == spoilt.host_id]
        # The log does not repeat when the pod first registered.
        assert not pod.unreadable or pod.unreadable.startswith("started")
        assert (await storage.jobs.heartbeat(spoilt, [], LEASE)).lease_held
        for queue in queues:
            [slots] = [
                each.pods for each in await storage.procs.allocations() if each.queue == queue
            ]
            assert spoilt.host_id in slots

    if backend == "redis":
        record = f"pod:{spoilt.host_id}"
        await each_wrong_field(backend, tmp_path, "", record, use, mend)
        await redis_commands(backend, tmp_path, "", ("DEL", record), ("SET", record, "spoilt"))
        await use()
        await mend()
    else:
        await each_wrong_value(
            backend, tmp_path, tables.pods, {"host_id": spoilt.host_id}, use, mend
        )


@pytest.mark.parametrize("backend", ALL)
async def test_a_slot(storage: Storage, backend: str, tmp_path: Path) -> None:
    leases = [await register(storage, queues=_QUEUES[:3]) for _ in _QUEUES]
    spoilt = leases.pop(SPOILT)
    hosts = {lease.host_id for lease in leases}

    async def use() -> None:
        await storage.config.set_queue(_QUEUES[0], _MEND)
        read = {each.queue: each for each in await storage.procs.allocations()}
        assert all({*read[name].pods} >= hosts for name in _QUEUES[:3])
        change = AllocationChange(
            queue=_QUEUES[0],
            version=read[_QUEUES[0]].version,
            slots={
                leases[0].host_id: Slots(1, max(1, read[_QUEUES[0]].pods[leases[0].host_id].grant))
            },
        )
        assert await storage.procs.allocate([change]) == [True]
        assert (await storage.jobs.heartbeat(leases[0], [], LEASE)).lease_held
        await storage.jobs.enqueue([new_job(queue=_QUEUES[0])])
        [claimed] = await claim(storage, leases[0], queue=_QUEUES[0])
        assert await storage.jobs.finalize([Finalization(claimed.claim, done())]) == [True]
        assert {pod.pod.host_id for pod in await storage.procs.pods()} >= hosts
        assert (await storage.cron.lead(leases[0].host_id, LEASE)).host_id == leases[0].host_id

    async def mend() -> None:
        nonlocal spoilt
        spoilt = await storage.procs.register(
            a_pod(host_id=spoilt.host_id, queues=_QUEUES[:3]), LEASE
        )
        beat = await storage.jobs.heartbeat(spoilt, [], LEASE)
        assert {*beat.queues} == {*_QUEUES[:3]}
        [read] = [e for e in await storage.procs.allocations() if e.queue == _QUEUES[0]]
        assert read.pods[spoilt.host_id] == Slots(0, 0)

    if backend == "redis":
        await each_wrong_entry(backend, tmp_path, _QUEUES[0], "slots", spoilt.host_id, use, mend)
    else:
        key = {"queue": _QUEUES[0], "host_id": spoilt.host_id}
        await each_wrong_value(backend, tmp_path, tables.slots, key, use, mend)


@pytest.mark.parametrize("backend", ALL)
async def test_a_schedule(storage: Storage, backend: str, tmp_path: Path) -> None:
    for name in _QUEUES:
        await storage.cron.put_schedule(schedule(name), EPOCH + SECOND)
    spoilt = _QUEUES[SPOILT]

    async def use() -> None:
        listed = await storage.cron.schedules(with_deleted=True)
        assert {each.spec.name for each in listed} == {*_QUEUES}
        assert all(not each.unreadable for each in listed if each.spec.name != spoilt)
        await storage.cron.get_schedule(spoilt)
        due = (await storage.cron.due_schedules(100)).schedules
        assert {each.spec.name for each in due} >= {*_OTHERS}
        firings = [
            Firing(
                name=each.spec.name,
                version=each.version,
                jobs=(new_job(queue="fired", schedule=each.spec.name),),
                next_at=EPOCH + SECOND,
                fired_at=EPOCH,
            )
            for each in listed
        ]
        fired = dict(
            zip((each.name for each in firings), await storage.cron.fire(firings), strict=True)
        )
        assert all(fired[name] for name in _OTHERS)

    async def mend() -> None:
        before = await storage.cron.ensure_schedule(schedule(spoilt), EPOCH + SECOND)
        assert before.spec.name == spoilt
        await storage.cron.put_schedule(schedule(spoilt, priority=1), EPOCH + SECOND)
        await storage.cron.pause_schedule(spoilt, False, EPOCH + SECOND)
        found = await storage.cron.get_schedule(spoilt)
        assert found is not None
        assert (found.spec, found.unreadable) == (schedule(spoilt, priority=1), "")
        due = (await storage.cron.due_schedules(100)).schedules
        assert spoilt in {each.spec.name for each in due}

    async def delete() -> None:
        with suppress(NotFound):  # The schedule may have been marked as gone.
            await storage.cron.delete_schedule(spoilt)
        assert await storage.cron.get_schedule(spoilt) is None

    if backend == "redis":
        await each_wrong_entry(backend, tmp_path, "", "schedules", spoilt, use, mend)
    else:
        key = {"name": spoilt}
        await each_wrong_value(backend, tmp_path, tables.schedules, key, use, mend)
        await each_wrong_value(backend, tmp_path, tables.schedules, key, use, delete)


@pytest.mark.parametrize("backend", ALL)
async def test_a_rate_limit(storage: Storage, backend: str, tmp_path: Path) -> None:
    for name in _QUEUES:
        await storage.config.set_rate_limit(name, RateLimit(1000, 1000))
    spoilt = _QUEUES[SPOILT]

    async def use() -> None:
        listed = await storage.config.rate_limits()
        assert {each.scope for each in listed} == {*_QUEUES}
        assert all(not each.unreadable for each in listed if each.scope != spoilt)
        await storage.config.ensure_rate_limit(_QUEUES[0], RateLimit(10, 1))
        assert (await storage.config.take_tokens(_QUEUES[0], 1)).granted

    async def mend() -> None:
        await storage.config.ensure_rate_limit(spoilt, RateLimit(10, 1))
        await storage.config.set_rate_limit(spoilt, RateLimit(20, 1))
        [found] = [each for each in await storage.config.rate_limits() if each.scope == spoilt]
        assert (found.limit, found.unreadable) == (RateLimit(20, SECOND), "")
        await storage.config.drain_tokens(spoilt)
        assert not (await storage.config.take_tokens(spoilt, 20)).granted
        [wait] = await storage.config.take_turns(spoilt, [1], timedelta(hours=1))
        assert wait is not None
        assert wait <= 2 * SECOND

    if backend == "redis":
        await each_wrong_entry(backend, tmp_path, "", "limits", spoilt, use, mend)
    else:
        key = {"scope": spoilt}
        await each_wrong_value(backend, tmp_path, tables.rate_limits, key, use, mend)


@pytest.mark.parametrize("backend", ALL)
async def test_an_event(storage: Storage, backend: str, tmp_path: Path) -> None:
    await storage.jobs.append_events(
        [
            TimelineEvent(
                at=EPOCH + n * SECOND, kind=EventKind.STARTED, queue="q", job_id="j", detail=str(n)
            )
            for n in range(MANY)
        ]
    )

    async def use() -> None:
        for queue, job_id in ((None, None), ("q", None), (None, JobId("j"))):
            found = await storage.jobs.events(limit=100, queue=queue, job_id=job_id)
            others = {str(n) for n in range(MANY) if n != SPOILT}
            assert {each.detail for each in found} >= others

    async def mend() -> None:
        found = await storage.jobs.events(limit=100)
        assert [each for each in found if each.kind is EventKind.UNREADABLE] or len(found) == MANY

    if backend != "redis":
        key = {"id": SPOILT + 1}
        await each_wrong_value(backend, tmp_path, tables.events, key, use, mend)
        return
    for number, text in enumerate(
        (b"spoilt {", b"", b"\xff\xfe", b"\x90", b"\x94\xa2\xff\xfe\xa0\xa0\xa0")
    ):
        member = f"{number:016}".encode() + text
        await redis_commands(
            backend,
            tmp_path,
            "q",
            ("ZADD", "events", number, member),
            ("RPUSH", "ev:j", f"{number} ".encode() + member),
            ("ZADD", "events", number, text),
            ("RPUSH", "ev:j", text),
        )
        await use()
        found = await storage.jobs.events(queue="q")
        assert EventKind.UNREADABLE in {each.kind for each in found}


@pytest.mark.parametrize("backend", ALL)
async def test_a_minute(storage: Storage, backend: str, tmp_path: Path) -> None:
    lease = await register(storage, queues=["q"])
    minute = (await storage.cron.now()).replace(second=0, microsecond=0)
    histogram = Histogram({3: 5})
    hosts = [HostId(f"pod-{number:02}") for number in range(MANY)]
    for host in hosts:
        sample = LatencySample(queue="q", minute=minute, processing=histogram, total=histogram)
        await storage.jobs.add_latencies(host, [sample])
        await storage.procs.record_gauges(PodLease(host, ""), minute, _GAUGES)
    await storage.jobs.enqueue([new_job(queue="q")])
    at = int(minute.timestamp()) * 1_000_000
    until = minute + timedelta(hours=1)

    async def use() -> None:
        [bucket] = await storage.jobs.metrics("q", minute, until)
        assert bucket.processing.counts[3] >= 5 * (MANY - 1) or bucket.total.counts[3] >= 5 * (
            MANY - 1
        )
        found = await storage.procs.gauges(minute, until)
        assert {each.host_id for each in found} >= {*hosts} - {hosts[SPOILT]}
        sample = LatencySample(queue="q", minute=minute, processing=histogram, total=histogram)
        await storage.jobs.add_latencies(hosts[SPOILT], [sample])
        await storage.jobs.enqueue([new_job(queue="q")])
        await storage.jobs.roll_up(1000)
        [bucket] = await storage.jobs.metrics("q", minute, until)
        assert bucket.counts
        await claim(storage, lease, queue="q")

    async def mend() -> None:
        await storage.procs.record_gauges(PodLease(hosts[SPOILT], ""), minute, _GAUGES)
        assert len(await storage.procs.gauges(minute, until)) == MANY

    if backend == "redis":
        await each_wrong_entry(backend, tmp_path, "q", f"l:{at}", hosts[SPOILT], use, mend)
        await each_wrong_field(backend, tmp_path, "q", f"m:{at}", use, mend)
        for value in ("spoilt {", "", b"\xff\xfe"):
            await redis_commands(backend, tmp_path, "", ("HSET", f"g:{at}", hosts[SPOILT], value))
            await use()
            await mend()
        return
    key: dict[str, object] = {"minute": at, "host_id": hosts[SPOILT]}
    await each_wrong_value(backend, tmp_path, tables.gauges, key, use, mend)
    await each_wrong_value(backend, tmp_path, tables.latencies, {**key, "queue": "q"}, use, mend)


@pytest.mark.parametrize("backend", ALL)
async def test_what_is_said_of_them(
    storage: Storage, backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    q, s, r = (f"{each}-{backend}" for each in "qsr")  # The log names each once in a process.
    lease = await register(storage, queues=[q])
    await storage.cron.put_schedule(schedule(s), EPOCH + SECOND)
    await storage.config.set_rate_limit(r, RateLimit(10, 1))
    if backend == "redis":
        await redis_commands(backend, tmp_path, q, ("HSET", "queue", "retention", "{"))
        fleet = (
            ("HSET", f"pod:{lease.host_id}", "doc", "{"),
            ("HSET", "schedules", s, b"\x90"),
            ("HSET", "limits", r, b"\x90"),
        )
        await redis_commands(backend, tmp_path, "", *fleet)
    else:
        spoilt: tuple[tuple[Table, dict[str, object], dict[str, object]], ...] = (
            (tables.queues, {"name": q}, {"retention": "{"}),
            (tables.pods, {"host_id": lease.host_id}, {"kinds": "{"}),
            (tables.schedules, {"name": s}, {"spec": "{"}),
            (tables.rate_limits, {"scope": r}, {"period_us": 0}),
        )
        for table, key, changes in spoilt:
            await spoil_row(backend, tmp_path, table, key, changes)
    for _ in range(3):
        beat = await storage.jobs.heartbeat(lease, [], LEASE)
        [queue] = await storage.config.queues()
        [pod] = await storage.procs.pods()
        [found] = await storage.cron.schedules()
        [limit] = await storage.config.rate_limits()
    assert queue.unreadable.startswith("retention is '{'")
    assert not beat.queues or beat.queues[q].state.unreadable == queue.unreadable
    assert pod.unreadable.startswith(("kinds is '{'", "doc is '{'"))
    assert found.unreadable.startswith("spec is '")
    assert limit.unreadable
    with pytest.raises(NotFound, match=f"rate limit '{r}' cannot be read: .*; set it anew"):
        await storage.config.take_tokens(r, 1)
    assert flush_reports(10)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert sorted(text.split(" cannot be read")[0] for text in told) == [
        f"the record of pod {str(lease.host_id)!r}",
        f"the record of queue {q!r}",
        f"the record of rate limit {r!r}",
        f"the record of schedule {s!r}",
    ]
    report = await fire_due_once(storage.cron, RuntimeSettings(), Random(1))
    assert (report.fired, report.disabled) == (0, ())


@pytest.mark.parametrize("backend", ALL)
async def test_the_leader(storage: Storage, backend: str, tmp_path: Path) -> None:
    lease = await register(storage)
    await storage.cron.lead(HostId("another"), LEASE)

    async def use() -> None:
        await storage.cron.leader()
        await problems(storage)
        await storage.cron.resign(HostId("another"), 1)

    async def mend() -> None:
        standing = await storage.cron.lead(HostId("another"), LEASE)
        if standing.remaining <= LEASE and standing.host_id not in {"another", lease.host_id}:
            return  # A holder that there is none of lets the lease run out.
        if standing.host_id != "another":
            await storage.cron.resign(standing.host_id, standing.term)
            standing = await storage.cron.lead(HostId("another"), LEASE)
        assert standing.host_id == "another"
        assert _NONE < standing.remaining <= LEASE
        assert (await storage.cron.lead(lease.host_id, LEASE)).host_id == "another"

    if backend == "redis":
        await each_wrong_field(backend, tmp_path, "", "leader", use, mend)
    else:
        await each_wrong_value(backend, tmp_path, tables.leader, {"name": "leader"}, use, mend)


@pytest.mark.parametrize("backend", ALL)
async def test_a_leaders_lease_that_never_ends(
    storage: Storage, backend: str, tmp_path: Path
) -> None:
    await storage.cron.lead(HostId("another"), LEASE)
    if backend == "redis":
        await redis_commands(backend, tmp_path, "", ("HSET", "leader", "until", str(2**52)))
    else:
        key = {"name": "leader"}
        await spoil_row(backend, tmp_path, tables.leader, key, {"lease_until": 2**62})
    standing = await storage.cron.lead(HostId("mine"), LEASE)
    assert (standing.host_id, standing.term) == ("mine", 2)
