"""Pods count their failures by groups, and keep the counts while the store is away."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from forge_jobs import Dead, HandlerRegistry
from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, Unavailable
from forge_jobs.model.failures import MOST_SAMPLES, ErrorGroup, FailureSample
from forge_jobs.model.failures.fingerprints import error_group
from forge_jobs.model.ids import HostId, new_job_id
from forge_jobs.model.jobs import Cause, Claim, ErrorRecord, JobStatus
from forge_jobs.model.transitions import Transition
from forge_jobs.policy.transitions import grouped
from forge_jobs.runtime.shared.failures import FailureRecorder
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE
from tests.support.runtimes import a_runtime, ended

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def a_claim(queue: str = QUEUE) -> Claim:
    return Claim(queue, new_job_id(), 1, HostId("pod"))


def a_failure(message: str = "order 1", status: JobStatus = JobStatus.FAILED) -> Transition:
    record = ErrorRecord(attempt=1, cause=Cause.FAILED, type="ValueError", message=message)
    return grouped(Transition(status=status, cause=Cause.FAILED, error=record), "tests.kind")


@pytest.fixture
def recorder(manual_storage: Storage, manual_clock: ManualClock) -> FailureRecorder:
    return FailureRecorder(manual_storage.jobs, version="8f2c", clock=manual_clock)


async def groups(storage: Storage) -> tuple[ErrorGroup, ...]:
    now = await storage.cron.now()
    return (await storage.jobs.error_groups(now - HOUR, now + HOUR)).groups


async def test_failures_are_found_again_per_group_and_minute(
    manual_storage: Storage, manual_clock: ManualClock, recorder: FailureRecorder
) -> None:
    start, claims = manual_clock.now(), [a_claim() for _ in range(3)]
    recorder.record(claims[0], "tests.kind", a_failure("order 1"))
    recorder.record(claims[1], "tests.kind", a_failure("order 2", JobStatus.DEAD))
    recorder.record(a_claim("other"), "tests.kind", a_failure())
    recorder.record(a_claim(), "tests.kind", a_failure("an invoice"))
    manual_clock.advance(MINUTE)
    recorder.record(claims[2], "tests.kind", a_failure("order 3"))
    assert await recorder.flush_once() == 4
    found = {(group.queue, group.message): group for group in await groups(manual_storage)}
    assert set(found) == {(QUEUE, "order …"), ("other", "order …"), (QUEUE, "an invoice")}
    group = found[QUEUE, "order …"]
    assert group.id == error_group("tests.kind", "ValueError", "order 99")
    assert (group.kind, group.type, group.versions) == ("tests.kind", "ValueError", ("8f2c",))
    assert [(each.at, each.retried, each.dead) for each in group.counts] == [
        (start, 1, 1),
        (start + MINUTE, 1, 0),
    ]
    assert group.jobs == tuple(claim.job_id for claim in reversed(claims))
    assert await recorder.flush_once() == 0


async def test_counts_survive_an_outage_and_count_once(
    manual_storage: Storage, recorder: FailureRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(samples: Sequence[FailureSample]) -> None:
        # A job that fails while the flush is under way.
        recorder.record(a_claim(), "tests.kind", a_failure())
        raise Unavailable("down")

    for _ in range(MOST_SAMPLES):
        recorder.record(a_claim(), "tests.kind", a_failure())
    with monkeypatch.context() as patch:
        patch.setattr(manual_storage.jobs, "add_failures", down)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await recorder.flush_once()
    await recorder.flush_once()
    assert await recorder.flush_once() == 0
    [group] = await groups(manual_storage)
    assert group.retried == MOST_SAMPLES + 2
    assert len(group.jobs) == MOST_SAMPLES


async def test_what_the_store_refuses_holds_up_nothing_later(
    manual_storage: Storage, recorder: FailureRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(samples: Sequence[FailureSample]) -> None:
        raise InvalidInput("message", "is bad", "mend it")

    recorder.record(a_claim(), "tests.kind", a_failure())
    with monkeypatch.context() as patch:
        patch.setattr(manual_storage.jobs, "add_failures", refuse)
        with pytest.raises(InvalidInput):
            await recorder.flush_once()
    assert await recorder.flush_once() == 0


async def test_what_is_kept_during_an_outage_is_bounded(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    recorder = FailureRecorder(manual_storage.jobs, clock=manual_clock, capacity=5)
    for number in range(20):
        recorder.record(a_claim(f"q{number}"), "tests.kind", a_failure())
    assert len(recorder) == 5
    await recorder.flush_once()
    assert {group.queue for group in await groups(manual_storage)} == {
        f"q{number}" for number in range(15, 20)
    }


@pytest.mark.parametrize(
    ("cause", "status", "is_failure"),
    [
        (Cause.FAILED, JobStatus.FAILED, True),
        (Cause.REJECTED, JobStatus.DEAD, True),
        (Cause.CRASHED, JobStatus.PENDING, True),
        (Cause.SUCCEEDED, JobStatus.DONE, False),
        (Cause.CANCELLED, JobStatus.CANCELLED, False),
        (Cause.INTERRUPTED, JobStatus.PENDING, False),
    ],
)
def test_failures_alone_have_groups(cause: Cause, status: JobStatus, is_failure: bool) -> None:
    record = ErrorRecord(attempt=1, cause=cause, type="ValueError", message="m")
    found = grouped(Transition(status=status, cause=cause, error=record), "k").error
    assert found is not None
    assert bool(found.error_group) == is_failure
    without = Transition(status=status, cause=cause)
    assert grouped(without, "k") is without


async def test_a_pod_tells_of_its_failures_when_it_stops(manual_storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("tests.charge")
    async def charge(order: int) -> None:
        raise Dead(f"order {order} was declined by 'bank {order}'")

    async with a_runtime(manual_storage, handlers).start() as handle:
        outcomes = [await handle.enqueue(charge.request(number)) for number in range(3)]
        jobs = [await ended(manual_storage, outcome.job_id) for outcome in outcomes]
    [group] = await groups(manual_storage)
    assert (group.dead, group.retried) == (3, 0)
    assert group.message == "order … was declined by …"
    assert {job.errors[-1].error_group for job in jobs} == {group.id}
    assert set(group.jobs) == {job.id for job in jobs}
