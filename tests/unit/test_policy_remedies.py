"""Remedies for a job that does not run, and the holders of the slots that it waits for."""

import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
import pytest

from forge_jobs.cli.main import cli
from forge_jobs.model.edges import GROUP_KIND, WORKFLOW_KIND
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Hold, JobStatus
from forge_jobs.model.queues import CooldownPolicy, QueueSettings
from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import Reason
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

    @pytest.mark.parametrize("kind", [GROUP_KIND, WORKFLOW_KIND])
    def test_a_kind_of_this_package_comes_with_an_include(self, kind: str) -> None:
        for told in (why(a_job(kind=kind, hold=Hold.UNKNOWN_KIND)), why(a_job(kind=kind))):
            assert told.reason in (Reason.UNKNOWN_KIND, Reason.NO_POD_WITH_KIND)
            assert told.text.endswith("pods know this kind by handlers.include(group_handlers())")

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


DASH = "-x"
"""A name that looks like an option."""

REMEDIES: dict[Callable[..., str], tuple[Any, ...]] = {
    remedies.resume_queue: (DASH,),
    remedies.set_max_workers: (DASH, 3),
    remedies.set_anew: (DASH,),
    remedies.start_worker: (DASH,),
    remedies.list_jobs: (DASH, "dead"),
    remedies.explain_job: ("01KB0000000000000000000000",),
    remedies.lift_strike: (DASH,),
    remedies.run_now: ("01KB0000000000000000000000",),
    remedies.cancel: ("01KB0000000000000000000000",),
    remedies.list_crashed: (DASH,),
    remedies.pause_queue: (DASH,),
    remedies.trigger_schedule: (DASH,),
    remedies.requeue: ("01KB0000000000000000000000", "01KB0000000000000000000001"),
    remedies.resume_workflow: ("01KB0000000000000000000000",),
    remedies.release_held: ("01KB0000000000000000000000",),
    remedies.set_limit: (DASH, "-limit", 1),
    remedies.show_key: (DASH, "--limit", "-key"),
    remedies.list_outbox: (DASH,),
    remedies.retry_outbox: (DASH, "01KB0000000000000000000000"),
}


def test_each_remedy_is_tried_with_a_name_that_looks_like_an_option() -> None:
    made = {each for name, each in inspect.getmembers(remedies, inspect.isfunction)}
    assert {*REMEDIES} == {each for each in made if each.__module__ == remedies.__name__}


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda each: each.__name__)
def test_a_command_takes_names_that_look_like_options(remedy: Callable[..., str]) -> None:
    given = REMEDIES[remedy]

    program, *words = shlex.split(remedy(*given))

    assert program == "forge-jobs"
    command: click.Command = cli
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    if "--help" in words:
        words.remove("--help")
    context = command.make_context("", words)
    texts = set(map(str, flat(context.params.values())))
    assert {*map(str, given)} <= texts


def flat(values: Iterable[Any]) -> Iterator[Any]:
    for each in values:
        if isinstance(each, list | tuple | dict):
            yield from flat(each)
        else:
            yield each


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
