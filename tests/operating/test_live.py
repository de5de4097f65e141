"""Viewers see the values of the reads, by their rights, at a bounded pace."""

from datetime import timedelta

import pytest

from forge_jobs.errors import Forbidden, Unavailable
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.progress import NewProgress, ProgressNote
from forge_jobs.model.queues import QueueChange
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.documents import document
from forge_jobs.operating.live.reading import EVERY, LiveReader
from forge_jobs.operating.live.seeing import seen
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.storage.protocols import Storage
from tests.operating.test_rights import ACCESSES, CLOSED, SECRET, furnish
from tests.support.factories import claim_one, enqueue_one, register
from tests.support.faulty import Faults, faulty

pytestmark = pytest.mark.anyio

ADA = Actor(name="ada", access=ALL)


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.moment = 1_000.0

    def __call__(self) -> float:
        return self.moment

    def tick(self, seconds: float = EVERY) -> None:
        self.moment += seconds


async def test_viewers_see_what_the_reads_say(storage: Storage) -> None:
    lease = await register(storage, queues=("default", "slow"), kinds=("t.kind",))
    job = await enqueue_one(storage, kind="t.kind")
    await enqueue_one(storage, queue="nobody")
    await storage.config.set_paused("slow", True)
    await claim_one(storage, lease, kinds=("t.kind",))
    reader = LiveReader(Reader(storage, Watch()))

    await reader.read([job], with_problems=True)
    state = seen(reader.now, ADA, [job])

    async with Operator(storage, ADA) as operator:
        queues = (await operator.list_queues()).queues
        pods = (await operator.list_pods()).pods
        assert state.jobs == (await operator.job_progress(job),)
    assert state.whole
    assert [
        (each.name, each.granted, each.pods, each.unserved, each.standing, each.due, each.running)
        for each in state.queues
    ] == [
        (
            each.name,
            each.granted,
            each.pods,
            each.unserved,
            each.standing,
            each.counts.due,
            each.counts.running,
        )
        for each in queues
    ]
    assert state.pods is not None
    assert [(each.host_id, each.standing) for each in state.pods] == [
        (each.pod.host_id, each.standing) for each in pods
    ]
    assert state.problems is not None


async def test_only_what_has_changed_is_told_again(sqlite_storage: Storage) -> None:
    later = await sqlite_storage.cron.now() + timedelta(hours=1)
    first = await enqueue_one(sqlite_storage, queue="one", run_at=later)
    await enqueue_one(sqlite_storage, queue="two", run_at=later)
    watch = Watch()
    reader = LiveReader(Reader(sqlite_storage, watch))
    await reader.read([first], with_problems=False)
    since = reader.now.version
    watch.tick(3)
    await reader.read([first], with_problems=False)
    assert reader.now.version == since

    await enqueue_one(sqlite_storage, queue="two", run_at=later)
    watch.tick(3)
    await reader.read([first], with_problems=False)
    state = seen(reader.now, ADA, [first], since=since)

    assert not state.whole
    assert [(each.name, each.by_status["pending"]) for each in state.queues] == [("two", 2)]
    assert state.pods is None
    assert state.jobs == ()


async def test_a_queue_that_comes_or_goes_makes_the_state_whole(sqlite_storage: Storage) -> None:
    await sqlite_storage.config.set_queue("one", QueueChange(max_workers=1))
    watch = Watch()
    reader = LiveReader(Reader(sqlite_storage, watch))
    await reader.read([], with_problems=False)
    since = reader.now.version

    await sqlite_storage.config.delete_queue("one")
    watch.tick(10)
    await reader.read([], with_problems=False)

    state = seen(reader.now, ADA, [], since=since)
    assert state.whole
    assert state.queues == ()


async def test_progress_is_told_at_the_next_reading(storage: Storage) -> None:
    lease = await register(storage, queues=("default",), kinds=("t.kind",))
    job = await enqueue_one(storage, kind="t.kind")
    claimed = await claim_one(storage, lease, kinds=("t.kind",))
    watch = Watch()
    reader = LiveReader(Reader(storage, watch))
    await reader.read([job], with_problems=False)
    since = reader.now.version

    note = ProgressNote(
        claim=claimed.claim, progress=NewProgress(3, 7, "half"), lines=(), attempt=1
    )
    await storage.jobs.note_progress([note])
    watch.tick()
    await reader.read([job], with_problems=False)

    [told] = seen(reader.now, ADA, [job], since=since).jobs
    assert told.progress is not None
    assert (told.progress.current, told.progress.message) == (3, "half")
    [hidden] = seen(reader.now, Actor(name="bob"), [job], since=since).jobs
    assert hidden.progress is not None
    assert hidden.progress.message != "half"


@pytest.mark.parametrize("named", ACCESSES)
async def test_no_viewer_sees_beyond_the_access(named: str, sqlite_storage: Storage) -> None:
    jobs = await furnish(sqlite_storage)
    access = ACCESSES[named]
    ids = [jobs["open"], jobs[CLOSED], new_job_id()]
    reader = LiveReader(Reader(sqlite_storage, Watch()))
    await reader.read(ids, with_problems=True)
    actor = Actor(name="ada", access=access)

    if not access.read:
        with pytest.raises(Forbidden):
            seen(reader.now, actor, ids)
        return
    state = seen(reader.now, actor, ids)

    text = document(state).decode()
    assert SECRET not in text
    if access.queues is not None:
        assert CLOSED not in text.replace(f'"{jobs[CLOSED]}"', "")
        assert jobs[CLOSED] in state.gone
        assert state.problems is None
    assert ids[2] in state.gone


async def test_a_minute_of_readings_is_three_calls_a_second(sqlite_storage: Storage) -> None:
    faults, watch = Faults(), Watch()
    jobs = [await enqueue_one(sqlite_storage) for _ in range(3)]
    await register(sqlite_storage, queues=("default",), kinds=("t.kind",))
    reader = LiveReader(Reader(faulty(sqlite_storage, faults), watch))
    for _ in range(60):
        await reader.read(jobs, with_problems=True)
        watch.tick()

    assert faults.calls["states"] == 60
    assert faults.calls.total() <= 3 * 60


async def test_of_many_jobs_each_reading_takes_the_next(
    sqlite_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.operating.live.reading.JOBS_AT_ONCE", 2)
    jobs = [await enqueue_one(sqlite_storage) for _ in range(5)]
    watch, known = Watch(), list[set[JobId]]()
    reader = LiveReader(Reader(sqlite_storage, watch))
    for _ in range(3):
        await reader.read(jobs, with_problems=False)
        known.append(set(reader.now.jobs))
        watch.tick()
    assert [len(each) for each in known] == [2, 4, 5]

    await reader.read(jobs[:1], with_problems=False)
    assert set(reader.now.jobs) == {jobs[0]}


async def test_after_an_outage_what_is_due_is_read(sqlite_storage: Storage) -> None:
    faults, watch = Faults(), Watch()
    reader = LiveReader(Reader(faulty(sqlite_storage, faults), watch))
    await reader.read([], with_problems=True)
    faults.down = True
    watch.tick(timedelta(minutes=1).total_seconds())
    with pytest.raises(Unavailable):
        await reader.read([], with_problems=True)
    faults.down = False
    await enqueue_one(sqlite_storage, queue="new")
    watch.tick()

    await reader.read([], with_problems=True)

    assert list(reader.now.queues) == ["new"]
