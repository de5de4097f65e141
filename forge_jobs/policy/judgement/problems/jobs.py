"""Rules on runs and failures: bursts, crash loops, long runners, ignored cancels, strikes."""

from collections.abc import Iterator

from forge_jobs.policy import remedies
from forge_jobs.policy.judgement.long_runs import long_from
from forge_jobs.policy.judgement.problems.problem import (
    Finding,
    clock,
    for_long,
    jobs_page,
    number,
    page_of,
    short,
)
from forge_jobs.policy.judgement.problems.snapshot import Snapshot

FEWEST_FAILURES = 10
BURST = 3.0
"""A burst is ten failures in five minutes, and three times the usual number."""

FEWEST_CRASHES = 3


def error_burst(seen: Snapshot) -> Iterator[Finding]:
    """A group of failures comes far more often than usual."""
    for group in seen.errors:
        if group.failures < max(FEWEST_FAILURES, BURST * group.usual):
            continue
        dead = f", {group.dead:,} dead" if group.dead else ""
        usual = f"{group.usual:.3g}" if group.usual else "none"
        yield Finding(
            about=group.kind,
            queue=group.queue,
            jobs=max(group.dead, group.failures),
            since=group.first_at,
            evidence=(
                f"{number(group.failures, 'failure')} of {group.kind} in 5 min{dead}: {group.type}."
            ),
            why=(
                f"Usual are {usual} in 5 min. The first of these was at "
                f"{clock(group.first_at, seen.now)}."
            ),
            action=(
                "Pause the queue while the cause is there, then requeue the dead jobs. "
                "Waiting jobs keep their attempts."
            ),
            command=remedies.pause_queue(group.queue),
            page=page_of("errors"),
        )


def crash_loop(seen: Snapshot) -> Iterator[Finding]:
    """Processes die again and again with jobs of one kind."""
    for group in seen.crashes:
        if group.crashes < FEWEST_CRASHES:
            continue
        memory = f" Pods say: {group.memory}." if group.memory else ""
        yield Finding(
            about=group.kind,
            queue=group.queue,
            jobs=group.crashes,
            since=group.first_at,
            evidence=(
                f"{group.crashes:,} processes died with jobs of {group.kind} since "
                f"{clock(group.first_at, seen.now)}."
            ),
            why=(
                "A job that crashes three times is dead by itself, and others of the kind may "
                f"follow.{memory}"
            ),
            action="Look at the log of the pods and at memory. Fewer slots need less memory.",
            command=remedies.list_crashed(group.kind),
            page=jobs_page(f"kind:{group.kind} cause:crashed"),
        )


def long_runner(seen: Snapshot) -> Iterator[Finding]:
    """A job runs far longer than others of its kind."""
    for run in seen.runs:
        if run.usual is None:
            continue
        yield Finding(
            about=run.job_id,
            queue=run.queue,
            jobs=1,
            since=run.started_at + long_from(run.usual),
            evidence=(
                f"Job {run.job_id} ({run.kind}) runs on {run.pod} for "
                f"{for_long(seen.now - run.started_at)}."
            ),
            why=f"99 of 100 runs of the kind take no longer than {short(run.usual)}.",
            action=(
                "See where the job stands. Cancel the job when its result is not wanted any more."
            ),
            command=remedies.cancel(run.job_id),
            page=page_of("jobs", run.job_id),
        )


def cancel_ignored(seen: Snapshot) -> Iterator[Finding]:
    """A job goes on although a cancel was asked for."""
    for run in seen.runs:
        asked = run.cancel_requested_at
        if asked is None:
            continue
        yield Finding(
            about=run.job_id,
            queue=run.queue,
            jobs=1,
            since=asked,
            evidence=(
                f"Job {run.job_id} ({run.kind}) runs on {run.pod} although a cancel was asked for "
                f"{for_long(seen.now - asked)} ago."
            ),
            why=(
                "A handler in a thread stops only where the handler looks at ctx.cancel_requested, "
                "and an async one may swallow the cancellation."
            ),
            action="Wait for the end of the job, or stop the pod: the rest of its jobs go on.",
            command=remedies.explain_job(run.job_id),
            page=page_of("jobs", run.job_id),
        )


def struck(seen: Snapshot) -> Iterator[Finding]:
    """Jobs are on hold for a strike."""
    for each in seen.struck:
        by = f" by {each.by}" if each.by else ""
        yield Finding(
            about=each.strike,
            queue=each.queue,
            jobs=each.jobs,
            since=each.since,
            evidence=(
                f"{number(each.jobs, 'job')} in queue {each.queue} held by the strike "
                f"{each.strike}, the oldest for {for_long(seen.now - each.since)}."
            ),
            why=f"The strike was set{by}{f': {each.reason}' if each.reason else '.'}",
            action="Lift the strike once the reason is gone. The jobs have kept their place.",
            command=remedies.lift_strike(each.strike),
            page=jobs_page(f"queue:{each.queue} cause:struck status:pending"),
        )
