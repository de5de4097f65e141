"""Rules on queues: not served, not granted, paused, growing, late, held."""

from collections.abc import Iterator
from datetime import datetime

from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import how_known
from forge_jobs.policy.judgement.objectives import HOUR
from forge_jobs.policy.judgement.problems.problem import (
    Finding,
    clock,
    for_long,
    jobs_page,
    number,
    page_of,
    waits,
)
from forge_jobs.policy.judgement.problems.snapshot import QueueSeen, Snapshot


def unserved(seen: Snapshot) -> Iterator[Finding]:
    """Jobs are due, and no live pod serves their queue."""
    for queue in seen.queues:
        if queue.unserved_since is None or not queue.due or queue.pods:
            continue
        if queue.paused_since is not None:
            continue  # no pod would take the jobs
        before = f" Until then {queue.served_by} did." if queue.served_by else ""
        yield Finding(
            about=queue.name,
            queue=queue.name,
            jobs=queue.due,
            since=_later(queue.unserved_since, queue.oldest_due_at),
            evidence=f"Queue {queue.name} is not served. {_backlog(queue, seen.now)}",
            why=(
                "No live pod serves the queue since "
                f"{clock(queue.unserved_since, seen.now)}.{before}"
            ),
            action=f"Start a pod, or add {queue.name} to FORGE_QUEUES of one that runs.",
            command=remedies.start_worker(queue.name),
            page=page_of("queues", queue.name),
        )


def not_granted(seen: Snapshot) -> Iterator[Finding]:
    """Jobs are due and pods serve the queue, but none has a slot."""
    for queue in seen.queues:
        has_none = queue.ungranted_since is not None and not queue.granted
        if not (has_none and queue.due and queue.pods and queue.max_workers and _is_open(queue)):
            continue
        yield Finding(
            about=queue.name,
            queue=queue.name,
            jobs=queue.due,
            since=_later(queue.ungranted_since, queue.oldest_due_at),
            evidence=f"No pod has a slot of queue {queue.name}. {_backlog(queue, seen.now)}",
            why=(
                f"{waits(queue.pods, 'pod')} for slots. Others still hold them, "
                "or the coordinator does not plan."
            ),
            action="See which pods hold the slots. A pod that drains gives its own back.",
            command=remedies.LOOK_AT_PODS,
            page=page_of("queues", queue.name),
        )


def paused(seen: Snapshot) -> Iterator[Finding]:
    """Jobs are due in a queue that an operator has paused."""
    for queue in seen.queues:
        if queue.paused_since is None or not queue.due:
            continue
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        yield Finding(
            about=queue.name,
            queue=queue.name,
            jobs=queue.due,
            since=_later(queue.paused_since, queue.oldest_due_at),
            evidence=f"Queue {queue.name} is paused with work due. {_backlog(queue, seen.now)}",
            why=f"The queue was paused{by} at {clock(queue.paused_since, seen.now)}.",
            action="Resume the queue once the reason for the pause is gone. No attempt is used.",
            command=remedies.resume_queue(queue.name),
            page=page_of("queues", queue.name),
        )


def cooling(seen: Snapshot) -> Iterator[Finding]:
    """Jobs are due in a queue that cools down after an upstream throttled."""
    for queue in seen.queues:
        if queue.cooling_since is None or not queue.due:
            continue
        until = f" until {clock(queue.cooling_until, seen.now)}" if queue.cooling_until else ""
        yield Finding(
            about=queue.name,
            queue=queue.name,
            jobs=queue.due,
            since=_later(queue.cooling_since, queue.oldest_due_at),
            evidence=f"Queue {queue.name} cools down{until}. {_backlog(queue, seen.now)}",
            why="A handler said that the other side throttles. Runs go on when the pause ends.",
            action="Wait. End the pause early only when the other side takes calls again.",
            command=remedies.resume_queue(queue.name),
            page=page_of("queues", queue.name),
        )


def growing(seen: Snapshot) -> Iterator[Finding]:
    """The backlog of a queue has grown without a break, and neither a pause nor a cool-down is why.

    More workers are no help there, also before the pause itself is a problem.
    """
    for queue in seen.queues:
        growth = queue.growth
        if growth is None or not queue.due or growth.a_minute <= 0 or not _is_open(queue):
            continue
        is_full = queue.granted >= queue.max_workers
        pace = f"{growth.a_minute:.3g}"
        noun = "job" if pace == "1" else "jobs"
        yield Finding(
            about=queue.name,
            queue=queue.name,
            jobs=queue.due,
            since=growth.since,
            evidence=(
                f"Queue {queue.name} grows by {pace} {noun} a minute. {_backlog(queue, seen.now)}"
            ),
            why=(
                f"A minute brings {growth.arrivals:.3g} and ends {growth.ends:.3g}, with "
                f"{queue.granted} of {number(queue.max_workers, 'slot')} granted."
            ),
            action=(
                "Raise max_workers, unless runs are slow because the other side is."
                if is_full
                else "Start pods: not all slots that max_workers allows are granted."
            ),
            command=(
                remedies.set_max_workers(queue.name, queue.max_workers * 2)
                if is_full
                else remedies.start_worker(queue.name)
            ),
            page=page_of("queues", queue.name),
        )


def objective_missed(seen: Snapshot) -> Iterator[Finding]:
    """The budget of a queue's objective burns fast."""
    for queue in seen.queues:
        stands = queue.standing
        if stands is None or queue.burning_since is None or not stands.is_burning:
            continue
        yield Finding(
            about=queue.name,
            queue=queue.name,
            jobs=queue.due,
            since=queue.burning_since,
            evidence=(
                f"Queue {queue.name} misses its objective, {stands.objective}: "
                f"{_share(stands.met.get(HOUR))} of the last hour, and the budget burns "
                f"{stands.burn_short:.3g} times too fast."
            ),
            why=f"Jobs start late. {_backlog(queue, seen.now)}",
            action="See what the oldest jobs wait for. More slots help when all are in use.",
            command=remedies.list_jobs(queue.name, "pending"),
            page=page_of("queues", queue.name),
        )


def unknown_kind(seen: Snapshot) -> Iterator[Finding]:
    """Jobs are held, because no live pod knows their kind."""
    for queue in seen.queues:
        for held in queue.held:
            known = f" Before, {held.known_by} did." if held.known_by else ""
            yield Finding(
                about=held.kind,
                queue=queue.name,
                jobs=held.jobs,
                since=held.since,
                evidence=(
                    f"{number(held.jobs, 'job')} of kind {held.kind} in queue {queue.name} "
                    f"cannot run since {clock(held.since, seen.now)}."
                ),
                why=f"No live pod knows the kind{how_known(held.kind)}.{known}",
                action="Start a pod of a release that has the kind. The jobs keep their place.",
                command=remedies.start_worker(queue.name),
                page=jobs_page(f"queue:{queue.name} kind:{held.kind}"),
            )


def children_held(seen: Snapshot) -> Iterator[Finding]:
    """Jobs are blocked behind a job that ended without success."""
    for queue in seen.queues:
        if not queue.children or queue.children_since is None:
            continue
        parent = queue.holding_parent
        yield Finding(
            about=queue.name,
            queue=queue.name,
            jobs=queue.children,
            since=queue.children_since,
            evidence=(
                f"{waits(queue.children, 'job')} in queue {queue.name} behind jobs that "
                "ended without success."
            ),
            why=f"Job {parent} holds {_them(queue.children)}.{_lost_key(queue.key_holder)}",
            action=_mending(queue),
            command=queue.mended_by,
            page=jobs_page(f"queue:{queue.name} status:blocked"),
        )


def _lost_key(holder: str) -> str:
    return f" It cannot be requeued while job {holder} has its unique key." if holder else ""


def _mending(queue: QueueSeen) -> str:
    if queue.key_holder:
        return _RELEASE
    return _MEND if queue.mended_by else _MEND_IN_A_PROGRAM


def _them(children: int) -> str:
    return "it" if children == 1 else "the one that waits longest, and may hold others"


_MEND = "Mend the cause and requeue the parent. Its children then run by themselves."
_RELEASE = "Release the job that waits. Or cancel the one that has the key, and requeue the parent."
_MEND_IN_A_PROGRAM = (
    "Mend the cause and resume the group in a program, by client.resume_group. Of a parent that "
    "is gone, release the children by jobs release-held."
)


def _later(since: datetime | None, oldest_due_at: datetime | None) -> datetime:
    """The later of two instants: jobs that came after the cause wait since they are due."""
    return max(each for each in (since, oldest_due_at) if each is not None)


def _share(met: float | None) -> str:
    return "none" if met is None else f"{met:.1%}"


def _is_open(queue: QueueSeen) -> bool:
    return queue.paused_since is None and queue.cooling_since is None


def _backlog(queue: QueueSeen, now: datetime) -> str:
    oldest = queue.oldest_due_at
    since = f", the oldest for {for_long(now - oldest)}" if oldest else ""
    return f"{waits(queue.due, 'job')}{since}."
