"""Documents of the live stream."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from forge_jobs.model.progress import JobState
from forge_jobs.policy.judgement.problems.problem import Problem


class LiveQueue(Struct, frozen=True, kw_only=True):
    """A queue, with what changes by itself.

    :param by_status: jobs per status
    :param more: statuses of ended jobs of which there are more than were counted
    :param due: jobs that could be claimed now
    :param held: waiting jobs kept from being claimed
    :param running: jobs in progress whose start is known
    :param oldest_due_since: when the oldest due job fell due. None when nothing is due
    :param granted: slots, on ``pods`` pods
    :param standing: the state in words, as of ``list_queues``
    """

    name: str
    by_status: Mapping[str, int]
    more: tuple[str, ...]
    due: int
    held: int
    running: int
    oldest_due_since: datetime | None
    granted: int
    pods: int
    max_workers: int
    paused: bool
    cooling: bool
    unserved: bool
    standing: str


class LivePod(Struct, frozen=True, kw_only=True):
    """A pod: ``live``, ``quiet``, ``draining`` or ``lost``.

    :param slots: granted, per queue
    :param in_progress: claims that the pod holds, per queue with any
    """

    host_id: str
    label: str
    standing: str
    slots: Mapping[str, int]
    in_progress: Mapping[str, int]


class LiveState(Struct, frozen=True, kw_only=True):
    """The newest state, or what has changed since the event before.

    :param at: the store's time of the reading, of which the states of jobs are
    :param fleet_at: the store's time at which pods and settings of queues began to be read. Older
        than ``at`` by some seconds: a caller who has read later knows more
    :param counts_at: likewise of the numbers of jobs
    :param whole: everything is here. Else only queues and jobs that have changed, and pods and
        problems where any of them did
    :param pods: all that the actor may know. None: as before
    :param problems: the worst first. None: as before, or the actor may not see all queues
    :param jobs: of the ids that were asked for
    :param gone: of the ids that were asked for, those that are no job, or of a queue that is closed
        to the actor
    """

    at: datetime
    fleet_at: datetime
    counts_at: datetime
    whole: bool
    queues: tuple[LiveQueue, ...] = ()
    pods: tuple[LivePod, ...] | None = None
    problems: tuple[Problem, ...] | None = None
    jobs: tuple[JobState, ...] = ()
    gone: tuple[str, ...] = ()


class LiveLost(Struct, frozen=True, kw_only=True):
    """The store does not answer. The stream goes on by itself once the store is back.

    :param at: the store's time of the last reading, None without one
    """

    at: datetime | None
    problem: str
