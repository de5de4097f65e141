"""Rules on pods, the leader and schedules."""

from collections.abc import Iterator

from forge_jobs.policy import remedies
from forge_jobs.policy.judgement.problems.problem import (
    Finding,
    clock,
    for_long,
    number,
    page_of,
)
from forge_jobs.policy.judgement.problems.snapshot import PodSeen, Snapshot

FEWEST_STARTS = 3


def pod_silent(seen: Snapshot) -> Iterator[Finding]:
    """A pod no longer beats, and did not say good-bye."""
    for pod in seen.pods:
        yield Finding(
            about=pod.name,
            jobs=pod.running,
            since=pod.last_beat_at,
            evidence=(
                f"Pod {_named(pod)} is silent since {clock(pod.last_beat_at, seen.now)}, with "
                f"{number(pod.running, 'job')} in hand."
            ),
            why="The process died, stands still, or does not reach the store.",
            action="Nothing has to be done for its jobs: other pods take them over.",
            command=remedies.LOOK_AT_PODS,
            page=page_of("pods", pod.name),
        )


def pod_flapping(seen: Snapshot) -> Iterator[Finding]:
    """A pod starts again and again."""
    for pod in seen.pods:
        if pod.starts < FEWEST_STARTS or pod.first_start_at is None:
            continue
        yield Finding(
            about=pod.name,
            jobs=pod.running,
            since=pod.first_start_at,
            evidence=f"Pod {_named(pod)} started {pod.starts} times in 10 min.",
            why="The process ends soon after its start, or its store is away at times.",
            action=(
                "Look at the last lines of its log. Go back to the release before, if there is one."
            ),
            command=remedies.LOOK_AT_PODS,
            page=page_of("pods", pod.name),
        )


def loop_blocked(seen: Snapshot) -> Iterator[Finding]:
    """The event loop of a pod stands still, and all of its async handlers with it."""
    for pod in seen.pods:
        if pod.blocked_since is None:
            continue
        where = f" in {pod.blocked_in}" if pod.blocked_in else ""
        yield Finding(
            about=pod.name,
            jobs=pod.running,
            since=pod.blocked_since,
            evidence=(
                f"The event loop of pod {_named(pod)} stands still for "
                f"{for_long(seen.now - pod.blocked_since)}, with "
                f"{number(pod.running, 'job')} in hand."
            ),
            why=f"A handler computes or waits{where} without giving the loop back.",
            action="Let the handler be def, or executor=process. Stopping the pod hands jobs back.",
            command=remedies.LOOK_AT_PODS,
            page=page_of("pods", pod.name),
        )


def drain_stuck(seen: Snapshot) -> Iterator[Finding]:
    """A pod was asked to stop and has not, beyond its grace."""
    for pod in seen.pods:
        if pod.draining_since is None or not pod.running:
            continue
        yield Finding(
            about=pod.name,
            jobs=pod.running,
            since=pod.draining_since + pod.grace,
            evidence=(
                f"Pod {_named(pod)} was asked to stop at {clock(pod.draining_since, seen.now)}"
                " and still has "
                f"{number(pod.running, 'job')}."
            ),
            why=(
                f"The grace of {for_long(pod.grace)} is over, and a handler in a thread cannot"
                " be ended."
            ),
            action="A second signal ends the process. Its jobs then run elsewhere.",
            command=remedies.LOOK_AT_PODS,
            page=page_of("pods", pod.name),
        )


def no_leader(seen: Snapshot) -> Iterator[Finding]:
    """Pods are live, and none leads."""
    if seen.leaderless_since is None or not seen.pods:
        return
    yield Finding(
        about="",
        jobs=sum(queue.due for queue in seen.queues),
        since=seen.leaderless_since,
        evidence=f"No pod leads since {clock(seen.leaderless_since, seen.now)}.",
        why=(
            "The pods try to take the lease and fail. Slots are not moved and schedules do not "
            "fire meanwhile. Running jobs go on."
        ),
        action="See whether the pods can write to the store.",
        command=remedies.EXAMINE,
        page=page_of("pods"),
    )


def clock_skew(seen: Snapshot) -> Iterator[Finding]:
    """The wall clock of a pod is off."""
    for pod in seen.pods:
        if pod.skewed_since is None:
            continue
        ahead = "ahead of" if pod.skew.total_seconds() > 0 else "behind"
        yield Finding(
            about=pod.name,
            since=pod.skewed_since,
            evidence=(
                f"The clock of pod {_named(pod)} is {for_long(abs(pod.skew))} {ahead} the store."
            ),
            why="Leases and due times are the store's, so no job is harmed. run_at of callers is.",
            action="Let the machine keep its time by NTP.",
            command=remedies.LOOK_AT_PODS,
            page=page_of("pods", pod.name),
        )


def polling_only(seen: Snapshot) -> Iterator[Finding]:
    """A pod hears no wake-ups."""
    for pod in seen.pods:
        if pod.polling_since is None:
            continue
        yield Finding(
            about=pod.name,
            since=pod.polling_since,
            evidence=(
                f"Pod {_named(pod)} hears no wake-ups since {clock(pod.polling_since, seen.now)}."
            ),
            why=(
                "Its listening connection is lost or refused, so work is found up to a second late."
            ),
            action="Give the URL direct=host:port past a pooler, or a role that may listen.",
            command=remedies.EXAMINE,
            page=page_of("pods", pod.name),
        )


def pool_exhausted(seen: Snapshot) -> Iterator[Finding]:
    """Calls of a pod wait for a connection."""
    for pod in seen.pods:
        if pod.exhausted_since is None:
            continue
        yield Finding(
            about=pod.name,
            jobs=pod.running,
            since=pod.exhausted_since,
            evidence=(
                f"All {number(pod.pool_size, 'connection')} of pod {_named(pod)} are in use, and "
                "calls wait for one."
            ),
            why="The store is slow, handlers keep transactions open, or the pool is too small.",
            action="Look at the store first. Then give the URL a larger pool_size.",
            command=remedies.EXAMINE,
            page=page_of("store"),
        )


def schedule_broken(seen: Snapshot) -> Iterator[Finding]:
    """A schedule is disabled by an error."""
    for schedule in seen.schedules:
        if not schedule.error or schedule.error_at is None:
            continue
        yield Finding(
            about=schedule.name,
            since=schedule.error_at,
            evidence=(
                f"Schedule {schedule.name} does not fire since "
                f"{clock(schedule.error_at, seen.now)}."
            ),
            why=f"The store has: {schedule.error[:200].rstrip('.')}.",
            action="Set the schedule anew. Occurrences that were missed follow its catch-up rule.",
            command=remedies.LIST_SCHEDULES,
            page=page_of("cron", schedule.name),
        )


def schedule_late(seen: Snapshot) -> Iterator[Finding]:
    """The time of a schedule has passed, and no job was made."""
    for schedule in seen.schedules:
        if schedule.error or schedule.next_at is None:
            continue
        yield Finding(
            about=schedule.name,
            since=schedule.next_at,
            evidence=(
                f"Schedule {schedule.name} should have fired at "
                f"{clock(schedule.next_at, seen.now)}, "
                f"{for_long(seen.now - schedule.next_at)} ago."
            ),
            why="No coordinator fires, or the store refuses its writes.",
            action="See who leads. A trigger by hand makes the job now, and one more later.",
            command=remedies.trigger_schedule(schedule.name),
            page=page_of("cron", schedule.name),
        )


def _named(pod: PodSeen) -> str:
    return f"{pod.name} (version {pod.version})" if pod.version else pod.name
