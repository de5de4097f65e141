"""An exact reason for every job, whatever its status and surroundings."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.ids import HostId, WorkerId, new_job_id
from forge_jobs.model.jobs import Cause, Hold, Job, JobStatus
from forge_jobs.model.processes import Allocation, Leadership, PodState, Slots
from forge_jobs.model.queues import QueueSettings, QueueState
from forge_jobs.policy.admission import Reason, explain
from tests.support.surroundings import (
    LEADER,
    MINUTE,
    NOW,
    OTHER,
    POD,
    SECOND,
    ZERO,
    a_job,
    a_pod,
    a_queue,
    a_running_job,
    an_allocation,
    an_error,
    why,
)


class TestWaitingForItself:
    def test_a_job_that_is_not_due_yet(self) -> None:
        due = NOW + 5 * MINUTE

        told = why(a_job(due_at=due))

        assert (told.reason, told.forecast) == (Reason.NOT_DUE, due)
        assert told.text == "'gh.sync' in queue 'gh': not due before 2026-06-01 12:05:00 UTC"

    def test_it_is_due_at_its_very_instant(self) -> None:
        assert why(a_job(due_at=NOW)).reason is Reason.READY
        assert why(a_job(due_at=NOW + timedelta(microseconds=1))).reason is Reason.NOT_DUE

    def test_a_job_that_waits_for_a_limit_names_it_and_its_turn(self) -> None:
        told = why(a_job(due_at=NOW + SECOND, cause=Cause.RATE_LIMITED, rate_limit="smtp"))
        assert told.reason is Reason.RATE_LIMITED
        assert "rate limit 'smtp'" in told.text
        assert told.forecast == NOW + SECOND

    @pytest.mark.parametrize(
        ("snoozes", "ordinal"),
        [
            (1, "1st"),
            (2, "2nd"),
            (3, "3rd"),
            (4, "4th"),
            (11, "11th"),
            (12, "12th"),
            (13, "13th"),
            (21, "21st"),
            (100, "100th"),
            (111, "111th"),
            (122, "122nd"),
        ],
    )
    def test_a_snoozed_job_says_how_often(self, snoozes: int, ordinal: str) -> None:
        told = why(a_job(due_at=NOW + SECOND, cause=Cause.SNOOZED, snoozes=snoozes))

        assert f": snoozed for the {ordinal} time; not due before" in told.text

    def test_a_failed_job_waits_for_its_retry(self) -> None:
        due = NOW + 30 * SECOND
        failed = a_job(
            status=JobStatus.FAILED, cause=Cause.FAILED, attempt=2, due_at=due, errors=(an_error(),)
        )

        told = why(failed)

        assert (told.reason, told.forecast) == (Reason.WAITS_FOR_RETRY, due)
        assert told.since == NOW - 10 * SECOND
        assert told.text == (
            "'gh.sync' in queue 'gh': waits for attempt 3 of 5 at 2026-06-01 12:00:30 UTC; "
            "attempt 2 failed with ValueError: no such repo"
        )

    def test_a_failed_job_without_a_record_says_what_it_knows(self) -> None:
        failed = a_job(
            status=JobStatus.FAILED,
            cause=Cause.TIMED_OUT,
            attempt=1,
            max_attempts=None,
            due_at=NOW + SECOND,
        )

        assert why(failed).text.endswith("UTC; attempt 1 timed_out")
        assert ": waits for attempt 2 at" in why(failed).text

    def test_a_kind_nobody_knows(self) -> None:
        told = why(a_job(hold=Hold.UNKNOWN_KIND), queue=a_queue(paused=True))

        assert told.reason is Reason.UNKNOWN_KIND
        assert "'gh.sync'" in told.text

    def test_a_job_that_has_expired(self) -> None:
        told = why(a_job(expires_at=NOW, hold=Hold.UNKNOWN_KIND))

        assert (told.reason, told.since) == (Reason.EXPIRED, NOW)

    def test_a_job_that_expires_soon_says_so_beside_its_reason(self) -> None:
        expires = NOW + SECOND

        told = why(a_job(due_at=NOW + MINUTE, expires_at=expires))

        assert (told.reason, told.forecast) == (Reason.NOT_DUE, expires)
        assert told.text.endswith("; expires at 2026-06-01 12:00:01 UTC")
        assert why(a_job(due_at=NOW + MINUTE, expires_at=NOW + 2 * MINUTE)).forecast == NOW + MINUTE
        assert why(a_job(expires_at=expires), pods=[]).forecast == expires


class TestBlocked:
    def test_it_names_the_parents_it_waits_for(self) -> None:
        parents = tuple(new_job_id() for _ in range(5))

        told = why(a_job(status=JobStatus.BLOCKED, waits_for=parents))

        assert (told.reason, told.blocked_by) == (Reason.BLOCKED_BY_PARENTS, parents)
        assert told.text.endswith(
            f": blocked: waits for 5 jobs: {', '.join(parents[:3])} and 2 more"
        )

    def test_one_parent_is_named_in_the_singular(self) -> None:
        parent = new_job_id()

        told = why(a_job(status=JobStatus.BLOCKED, waits_for=(parent,)))

        assert told.text.endswith(f": blocked: waits for 1 job: {parent}")

    def test_parents_that_failed_are_told_apart_from_those_to_come(self) -> None:
        dead, cancelled, gone, running, again = (new_job_id() for _ in range(5))

        told = why(
            a_job(
                status=JobStatus.BLOCKED,
                waits_for=(dead, cancelled, gone, running, again),
                held_by=(dead, cancelled, gone, again),
            ),
            parents={
                dead: JobStatus.DEAD,
                cancelled: JobStatus.CANCELLED,
                running: JobStatus.IN_PROGRESS,
                again: JobStatus.PENDING,
            },
        )

        assert told.reason is Reason.BLOCKED_BY_FAILED_PARENT
        assert told.blocked_by == (dead, cancelled, gone)
        assert f"held by {dead}, {cancelled}, {gone}, which ended without success" in told.text


class TestWaitingForItsQueue:
    def test_a_paused_queue_comes_before_the_fleet(self) -> None:
        told = why(a_job(), queue=a_queue(paused=True, cooldown_remaining=SECOND), pods=[])

        assert told.reason is Reason.PAUSED

    def test_a_paused_queue_says_since_when(self) -> None:
        since = NOW - 30 * SECOND

        told = why(a_job(), queue=a_queue(paused=True, paused_since=since))

        assert told.since == since
        assert told.text.endswith("is paused by an operator since 2026-06-01 11:59:30 UTC")

    def test_a_queue_that_cools_down_says_until_when(self) -> None:
        told = why(a_job(), queue=a_queue(cooldown_remaining=30 * SECOND, cooldown_level=2))

        assert (told.reason, told.forecast) == (Reason.COOLING_DOWN, NOW + 30 * SECOND)
        assert told.text == (
            "'gh.sync' in queue 'gh': "
            "the queue cools down until 2026-06-01 12:00:30 UTC after 2 throttles in a row"
        )

    def test_a_queue_without_workers(self) -> None:
        told = why(a_job(), queue=a_queue(settings=QueueSettings(max_workers=0)))

        assert told.reason is Reason.MAX_WORKERS_ZERO

    def test_a_queue_the_store_does_not_have(self) -> None:
        assert why(a_job(), queue=None).reason is Reason.QUEUE_UNKNOWN


class TestWaitingForTheFleet:
    @pytest.mark.parametrize(
        "pods", [[], [a_pod(queues=("other",))], [a_pod(lease_remaining=ZERO)]]
    )
    def test_no_live_pod_declares_the_queue(self, pods: list[PodState]) -> None:
        assert why(a_job(), pods=pods).reason is Reason.NO_POD

    def test_a_pod_that_died_is_named_with_its_last_beat(self) -> None:
        gone = a_pod(label="web-1", lease_remaining=ZERO, last_beat_at=NOW - 30 * SECOND)

        told = why(a_job(), pods=[gone])

        assert told.since == NOW - 30 * SECOND
        assert told.text.endswith(
            "no live pod serves the queue (FORGE_QUEUES); "
            "pod web-1 did until 2026-06-01 11:59:30 UTC"
        )

    def test_an_expired_job_is_not_cancelled_where_no_pod_lives(self) -> None:
        expired = a_job(expires_at=NOW - SECOND)

        assert why(expired).text.endswith("; about to be cancelled")
        assert why(expired, pods=[]).text.endswith("; no live pod is there to cancel it")

    def test_all_pods_that_declare_it_are_shutting_down(self) -> None:
        told = why(a_job(), pods=[a_pod(draining=True, slots={})])

        assert told.reason is Reason.ONLY_DRAINING_PODS

    @pytest.mark.parametrize(
        "leader", [None, Leadership(host_id=POD, term=1, remaining=ZERO, fleet_version="")]
    )
    def test_nobody_is_there_to_grant_slots(self, leader: Leadership | None) -> None:
        assert why(a_job(), pods=[a_pod(slots={})], leader=leader).reason is Reason.NO_LEADER

    def test_slots_are_not_granted_yet(self) -> None:
        assert why(a_job(), pods=[a_pod(slots={})]).reason is Reason.NO_SLOTS
        assert why(a_job(), allocation=an_allocation(POD_A=0)).reason is Reason.NO_SLOTS

    def test_slots_of_a_pod_that_shuts_down_do_not_help(self) -> None:
        pods = [a_pod(draining=True), a_pod(OTHER, slots={})]

        assert why(a_job(), pods=pods).reason is Reason.NO_SLOTS

    def test_the_pods_with_slots_do_not_know_the_kind(self) -> None:
        pods = [a_pod(kinds=("gh.other",)), a_pod(OTHER, slots={})]

        told = why(a_job(), pods=pods, allocation=an_allocation(POD_A=2, POD_B=0))

        assert told.reason is Reason.NO_POD_WITH_KIND
        assert told.help == "forge-jobs pods"
        assert told.text.endswith(
            ": no pod with slots of the queue knows the kind: POD-A; within seconds the "
            "coordinator moves slots to POD-B, which get them as running jobs end"
        )

    def test_no_pod_of_the_queue_knows_the_kind(self) -> None:
        told = why(a_job(), pods=[a_pod(kinds=("gh.other",))])

        assert told.reason is Reason.NO_POD_WITH_KIND
        assert told.help == "forge-jobs worker MODULE:ATTR --queues gh"

    def test_pods_that_run_as_many_jobs_as_they_may_leave_slots_free(self) -> None:
        pods = [a_pod(concurrency=2, in_progress={"gh": 1, "other": 1})]

        told = why(a_job(), pods=pods)

        assert told.reason is Reason.SLOTS_BUSY
        assert told.text.endswith(
            ": every pod with a slot runs as many jobs as it may at once (--concurrency): POD-A; "
            "1 of 2 slots in use"
        )

    def test_all_slots_are_busy(self) -> None:
        pods = [a_pod(in_progress={"gh": 1}), a_pod(OTHER, in_progress={"gh": 2})]

        told = why(a_job(), pods=pods, allocation=an_allocation(POD_A=1, POD_B=1))

        assert (told.reason, told.since) == (Reason.SLOTS_BUSY, NOW - MINUTE)
        assert told.text == "'gh.sync' in queue 'gh': no slot is free: 2 of 2 slots in use"

    def test_a_free_slot_of_a_pod_without_the_kind_does_not_help(self) -> None:
        pods = [a_pod(in_progress={"gh": 1}), a_pod(OTHER, kinds=())]

        told = why(a_job(), pods=pods, allocation=an_allocation(POD_A=1, POD_B=1))

        assert told.reason is Reason.SLOTS_BUSY
        assert told.text.endswith(
            ": no slot is free: 1 of 1 slot on pods that know the kind in use"
        )

    def test_nothing_stands_in_the_way(self) -> None:
        told = why(a_job(), pods=[a_pod(in_progress={"gh": 1})])

        assert told.reason is Reason.READY
        assert told.text == "'gh.sync' in queue 'gh': ready; 1 of 2 slots in use"

    def test_a_failed_job_whose_retry_is_due_waits_for_a_slot_too(self) -> None:
        told = why(a_job(status=JobStatus.FAILED), pods=[a_pod(in_progress={"gh": 2})])

        assert told.reason is Reason.SLOTS_BUSY


class TestInProgress:
    def test_a_running_job_says_where_and_since_when(self) -> None:
        told = why(a_running_job(timeout=MINUTE), pods=[a_pod(label="web-worker-1")])

        assert (told.reason, told.since) == (Reason.RUNNING, NOW - 4 * SECOND)
        assert told.forecast == NOW + 56 * SECOND
        assert told.text.endswith(
            ": attempt 2 of 5 runs on pod web-worker-1, worker WORKER, "
            "since 2026-06-01 11:59:56 UTC"
        )

    def test_one_held_ahead_has_not_started(self) -> None:
        told = why(a_running_job(started_at=None, worker_id=WorkerId("")))

        assert (told.reason, told.since) == (Reason.HELD_AHEAD, NOW - 5 * SECOND)
        assert "POD-A" in told.text

    @pytest.mark.parametrize("started_at", [NOW - 4 * SECOND, None])
    def test_one_that_was_asked_to_cancel(self, started_at: datetime | None) -> None:
        told = why(a_running_job(cancel_requested=True, started_at=started_at))

        assert told.reason is Reason.CANCELLING
        assert told.since == (started_at or NOW - 5 * SECOND)

    def test_one_that_goes_on_past_its_timeout(self) -> None:
        start = NOW - 10 * SECOND

        told = why(a_running_job(started_at=start, timeout=10 * SECOND - timedelta(microseconds=1)))
        in_time = why(a_running_job(started_at=start, timeout=10 * SECOND))

        assert (told.reason, told.since) == (Reason.OVERRUNNING, NOW - timedelta(microseconds=1))
        assert "past its timeout" in told.text
        assert (in_time.reason, in_time.forecast) == (Reason.RUNNING, NOW)

    @pytest.mark.parametrize("pods", [[], [a_pod(lease_remaining=ZERO)], [a_pod(OTHER)]])
    def test_one_whose_pod_is_silent(self, pods: list[PodState]) -> None:
        told = why(a_running_job(), pods=pods)

        assert (told.reason, told.since) == (Reason.OWNER_SILENT, NOW - SECOND)

    def test_nothing_is_revived_where_no_pod_lives_to_do_it(self) -> None:
        revived = why(a_running_job(), pods=[a_pod(lease_remaining=ZERO), a_pod(OTHER)])
        left = why(a_running_job(), pods=[a_pod(lease_remaining=ZERO)])

        assert revived.text.endswith("; another pod revives it once the claim is stale")
        assert revived.help == ""
        assert left.text.endswith("; no live pod is there to revive it")
        assert left.help == "forge-jobs worker MODULE:ATTR --queues gh"


class TestEnded:
    def test_done(self) -> None:
        told = why(a_job(status=JobStatus.DONE, attempt=1, finished_at=NOW))

        assert (told.reason, told.since) == (Reason.DONE, NOW)
        assert told.text == "'gh.sync' in queue 'gh': done in attempt 1 of 5"

    def test_done_past_its_timeout(self) -> None:
        error = an_error(cause=Cause.TIMED_OUT, type="Overran", message="the handler went on")

        told = why(a_job(status=JobStatus.DONE, attempt=1, errors=(error,)))

        assert told.text.endswith(": done in attempt 1 of 5; the handler went on")

    def test_done_with_a_result_that_could_not_be_stored(self) -> None:
        errors = (an_error(), an_error(cause=Cause.SUCCEEDED, type="TypeError", message="a set"))

        told = why(a_job(status=JobStatus.DONE, attempt=2, errors=errors))

        assert told.text.endswith(
            ": done in attempt 2 of 5; its result is missing: TypeError: a set"
        )

    @pytest.mark.parametrize(
        ("job", "text"),
        [
            (
                {"cause": Cause.FAILED, "attempt": 5, "errors": (an_error(),)},
                "dead after attempt 5 of 5: failed with ValueError: no such repo, "
                "its attempts are used up",
            ),
            (
                {"cause": Cause.FAILED, "attempt": 1, "errors": (an_error(),)},
                "dead after attempt 1 of 5: failed with ValueError: no such repo",
            ),
            (
                {
                    "cause": Cause.REJECTED,
                    "attempt": 1,
                    "errors": (an_error(cause=Cause.REJECTED),),
                },
                "dead after attempt 1 of 5: its handler gave it up, "
                "rejected with ValueError: no such repo",
            ),
            (
                {"cause": Cause.TIMED_OUT, "attempt": 3, "max_attempts": None},
                "dead after attempt 3: timed_out",
            ),
        ],
    )
    def test_dead_says_why(self, job: dict[str, Any], text: str) -> None:
        told = why(a_job(status=JobStatus.DEAD, finished_at=NOW, **job))

        assert (told.reason, told.text) == (Reason.DEAD, f"'gh.sync' in queue 'gh': {text}")

    @pytest.mark.parametrize(
        ("cause", "text"),
        [
            (Cause.CANCELLED, "cancelled: on request"),
            (Cause.EXPIRED, "cancelled: it expired before it ran"),
            (Cause.PARENT_FAILED, "cancelled: a job it waited for ended without success"),
        ],
    )
    def test_cancelled_says_why(self, cause: Cause, text: str) -> None:
        told = why(a_job(status=JobStatus.CANCELLED, cause=cause, expires_at=NOW))

        assert (told.reason, told.text) == (Reason.CANCELLED, f"'gh.sync' in queue 'gh': {text}")


INSTANTS = st.integers(-1000, 1000).map(lambda seconds: NOW + seconds * SECOND)
MAYBE = st.none() | INSTANTS
JOBS = st.builds(
    a_job,
    status=st.sampled_from(JobStatus),
    cause=st.sampled_from(Cause),
    attempt=st.integers(0, 6),
    max_attempts=st.none() | st.integers(1, 5),
    snoozes=st.integers(0, 200),
    due_at=INSTANTS,
    claimed_at=MAYBE,
    started_at=MAYBE,
    expires_at=MAYBE,
    timeout=st.none() | st.just(MINUTE),
    hold=st.none() | st.just(Hold.UNKNOWN_KIND),
    host_id=st.sampled_from([HostId(""), POD, OTHER]),
    cancel_requested=st.booleans(),
    errors=st.just(()) | st.just((an_error(at=None, message="a\nb"),)),
    waits_for=st.lists(st.just(new_job_id()), max_size=4).map(tuple),
)
QUEUES = st.none() | st.builds(
    a_queue,
    paused=st.booleans(),
    cooldown_remaining=st.sampled_from([ZERO, SECOND]),
    settings=st.integers(0, 2).map(lambda most: QueueSettings(max_workers=most)),
)
PODS = st.lists(
    st.builds(
        a_pod,
        st.sampled_from([POD, OTHER]),
        label=st.sampled_from(["", "web-worker-1"]),
        queues=st.sampled_from([(), ("gh",)]),
        kinds=st.sampled_from([(), ("gh.sync",)]),
        lease_remaining=st.sampled_from([ZERO, SECOND]),
        draining=st.booleans(),
        slots=st.sampled_from([{}, {"gh": Slots(1, 0)}, {"gh": Slots(1, 2)}]),
        in_progress=st.sampled_from([{}, {"gh": 2}]),
    ),
    max_size=3,
)
ALLOCATIONS = st.none() | st.builds(an_allocation, POD_A=st.integers(0, 2))
WAITING_REASONS = set(Reason) - {
    Reason.CANCELLING,
    Reason.HELD_AHEAD,
    Reason.RUNNING,
    Reason.OVERRUNNING,
    Reason.OWNER_SILENT,
    Reason.DONE,
    Reason.DEAD,
    Reason.CANCELLED,
}


@given(JOBS, QUEUES, ALLOCATIONS, PODS, st.none() | st.just(LEADER))
def test_every_job_has_a_reason_that_fits_its_status_in_one_line(
    job: Job,
    queue: QueueState | None,
    allocation: Allocation | None,
    pods: list[PodState],
    leader: Leadership | None,
) -> None:
    told = explain(job, queue, allocation, pods, leader, NOW)

    assert told.text.startswith("'gh.sync' in queue 'gh': ")
    assert told.text.isprintable()
    waiting = {JobStatus.PENDING, JobStatus.FAILED, JobStatus.BLOCKED}
    assert (told.reason in WAITING_REASONS) == (job.status in waiting)
    assert told.forecast is None or job.status in waiting | {JobStatus.IN_PROGRESS}
    by_itself = {
        Reason.READY,
        Reason.EXPIRED,
        Reason.BLOCKED_BY_PARENTS,
        Reason.RATE_LIMITED,
    }
    assert told.help or told.reason not in WAITING_REASONS - by_itself
    is_late = job.status in {JobStatus.PENDING, JobStatus.FAILED} and job.due_at <= NOW
    assert told.since is not None or not is_late
    if told.reason is Reason.READY:
        assert job.due_at <= NOW
        assert queue is not None
        assert not queue.paused
