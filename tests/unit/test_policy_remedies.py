"""Remedies for a job that does not run, and the holders of the slots that it waits for."""

from typing import Any

import pytest

from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Hold, JobStatus
from forge_jobs.model.queues import CooldownPolicy, QueueSettings
from tests.support.surroundings import (
    MINUTE,
    NOW,
    OTHER,
    SECOND,
    a_job,
    a_pod,
    a_queue,
    a_running_job,
    a_worker,
    why,
)

LONG_PAUSES = QueueSettings(cooldown=CooldownPolicy(base=2 * MINUTE))
"""A cool-down that is about to end began before the job was due."""


class TestWhatHelps:
    """The command that helps, in a form that a shell takes."""

    @pytest.mark.parametrize(
        ("surroundings", "command"),
        [
            ({"queue": a_queue(paused=True)}, "queues resume gh"),
            (
                {"queue": a_queue(cooldown_remaining=SECOND, settings=LONG_PAUSES)},
                "queues resume gh",
            ),
            (
                {"queue": a_queue(settings=QueueSettings(max_workers=0))},
                "queues set gh --max-workers 1",
            ),
            ({"queue": None}, "worker MODULE:ATTR --queues gh"),
            ({"pods": []}, "worker MODULE:ATTR --queues gh"),
            ({"pods": [a_pod(draining=True)]}, "worker MODULE:ATTR --queues gh"),
            ({"pods": [a_pod(kinds=())]}, "worker MODULE:ATTR --queues gh"),
            ({"pods": [a_pod(slots={})], "leader": None}, "doctor"),
            ({"pods": [a_pod(slots={})]}, "pods"),
            ({"pods": [a_pod(in_progress={"gh": 2})]}, "queues set gh --max-workers 3"),
        ],
    )
    def test_of_a_job_that_is_due(self, surroundings: dict[str, Any], command: str) -> None:
        told = why(a_job(), **surroundings)

        assert told.help == f"forge-jobs {command}"
        assert told.since == NOW - MINUTE, "since it was due"

    def test_of_one_whose_kind_nobody_knows(self) -> None:
        told = why(a_job(hold=Hold.UNKNOWN_KIND))

        assert told.help == "forge-jobs worker MODULE:ATTR --queues gh"

    def test_of_one_that_is_due_later(self) -> None:
        job = a_job(due_at=NOW + MINUTE)

        assert why(job).help == f"forge-jobs jobs run-now {job.id}"

    def test_of_one_that_ended_without_success(self) -> None:
        dead, done = a_job(status=JobStatus.DEAD), a_job(status=JobStatus.DONE)

        assert why(dead).help == f"forge-jobs jobs requeue {dead.id}"
        assert why(done).help == ""

    def test_of_one_behind_parents(self) -> None:
        parent = new_job_id()
        job = a_job(status=JobStatus.BLOCKED, waits_for=(parent,))

        assert why(job).help == f"forge-jobs explain {parent}"

    def test_of_one_that_a_failed_parent_holds(self) -> None:
        parent = new_job_id()
        job = a_job(status=JobStatus.BLOCKED, waits_for=(parent,), held_by=(parent,))

        assert why(job).help == f"forge-jobs jobs release-held {job.id}"
        requeued = why(job, parents={parent: JobStatus.PENDING})
        assert requeued.help == f"forge-jobs explain {parent}"

    def test_a_name_that_a_shell_would_split_is_quoted(self) -> None:
        told = why(a_job(queue="two words; rm"), queue=a_queue(paused=True))

        assert told.help == "forge-jobs queues resume 'two words; rm'"

    def test_nothing_when_it_goes_on_by_itself(self) -> None:
        assert why(a_job()).help == ""
        assert why(a_running_job()).help == ""

    def test_one_about_to_be_freed_is_still_explained(self) -> None:
        freed, left = a_job(status=JobStatus.BLOCKED), a_job(status=JobStatus.BLOCKED)

        assert why(freed).text.endswith("all that it waited for has ended; about to be freed")
        assert why(left, pods=[]).text.endswith("; no live pod is there to free it")
        assert why(left, pods=[]).help == "forge-jobs worker MODULE:ATTR --queues gh"


class TestWhoHoldsTheSlots:
    def test_the_longest_running_first(self) -> None:
        workers = (
            a_worker(OTHER, job_id=JobId("SHORT"), kind="gh.ping", started_at=NOW - SECOND),
            a_worker(job_id=JobId("ELSEWHERE"), queue="other"),
            a_worker(job_id=JobId("LONG"), started_at=NOW - MINUTE),
        )

        told = why(a_job(), pods=[a_pod(label="web-1", in_progress={"gh": 2})], workers=workers)

        assert told.held_by == (
            "job LONG ('gh.sync') on pod web-1 since 2026-06-01 11:59:00 UTC",
            "job SHORT ('gh.ping') on pod POD-B since 2026-06-01 11:59:59 UTC",
        )
        assert told.text.endswith(f"2 of 2 slots in use, the longest by {told.held_by[0]}")

    def test_no_more_than_ten(self) -> None:
        workers = tuple(a_worker(job_id=JobId(f"JOB{n}")) for n in range(11))

        told = why(a_job(), pods=[a_pod(in_progress={"gh": 2})], workers=workers)

        assert len(told.held_by) == 10
