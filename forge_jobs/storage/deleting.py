"""Why a queue cannot be deleted, in words."""

import shlex

from forge_jobs.errors import Conflict, NotFound

MOST_COUNTED = 10_000
"""Counting stops here: an exact number beyond is not worth the wait."""


def unknown_queue(name: str) -> NotFound:
    """Return the error that there is no queue of that name."""
    return NotFound(f"there is no queue {name!r}; forge-jobs queues list names all")


def in_use(name: str, jobs: int, pods: int) -> Conflict:
    """Return the error that names what prevents the deletion, and what to do.

    :param jobs: counted up to one more than :data:`MOST_COUNTED`
    """
    if pods:
        what = "a live pod declares" if pods == 1 else f"{pods} live pods declare"
        return Conflict(
            f"the queue {name!r} is in use: {what} it; take it out of FORGE_QUEUES and restart "
            "them, or let them call remove_queue(). Pods that serve it by a pattern leave an empty "
            "queue after queue_idle, 10 minutes by default"
        )
    many = f"more than {MOST_COUNTED:,} jobs" if jobs > MOST_COUNTED else f"{jobs:,} jobs"
    return Conflict(
        f"the queue {name!r} has {'1 job' if jobs == 1 else many}; delete these first: "
        f"forge-jobs jobs delete --queue {shlex.quote(name)}"
    )


def no_limit(queue: str, name: str) -> NotFound:
    """Return the error of a limit that is not there."""
    return NotFound(
        f"queue {queue!r} has no limit {name!r}; forge-jobs limits concurrency names all"
    )
