"""Health of a pod: whether the pod can claim, not merely whether the process lives."""

from collections.abc import Mapping

from msgspec import Struct

from forge_jobs.model.ids import HostId
from forge_jobs.runtime.shared.service import LoopHealth


class QueueHealth(Struct, frozen=True, kw_only=True):
    """A queue on this pod.

    :param running: handlers, including threads that outlived their time
    :param held_ahead: claims not started yet
    :param waiting_ends: ends of claims that the store has not taken yet
    :param set_aside: ends that the store refuses while others are taken, a line for each reason
    :param store_failures: calls in a row that the store did not answer
    :param silent: the queue's part of the store does not answer beats, while other parts do
    :param unreadable: what cannot be read of the queue's record, or on Redis of the queue's keys.
        "" for nothing
    """

    grant: int
    target: int
    running: int
    held_ahead: int
    waiting_ends: int
    set_aside: tuple[str, ...]
    store_failures: int
    silent: bool = False
    unreadable: str = ""


class PodHealth(Struct, frozen=True, kw_only=True):
    """A pod at one moment.

    :param problems: why the pod is not able to claim. Empty when the pod is able
    :param last_beat_ago: seconds since the last beat that renewed the lease was sent. None before
        the first
    :param lost_claims: claims that turned out to belong to another pod, since the start
    :param overruns: handlers that went on past the timeout of their job, since the start
    :param blocked_count: how often the event loop was found blocked
    :param stuck: handlers that were asked to stop and have not ended
    :param unlogged: reports of this process that the log did not take, since the start
    :param overdue: loops whose last good pass is late by more than half a minute
    :param set_aside: revivals of jobs of dead pods, and deliveries to children, that the store
        refuses while others are taken. A line for each reason. Ends are set aside queue by queue
    :param listening: wake-ups of other pods arrive at once. False: their work is found by polling
    """

    host_id: HostId
    problems: tuple[str, ...]
    draining: bool
    last_beat_ago: float | None
    lost_claims: int
    overruns: int
    blocked_count: int
    stuck: int
    unlogged: int
    listening: bool
    queues: Mapping[str, QueueHealth]
    loops: Mapping[str, LoopHealth]
    overdue: tuple[str, ...]
    set_aside: tuple[str, ...] = ()

    @property
    def able_to_claim(self) -> bool:
        """Return whether the pod beats, holds a lease, reaches the store, and its loop runs."""
        return not self.problems
