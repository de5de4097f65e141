"""How a pod does: able to claim, not merely alive."""

from collections.abc import Mapping

from msgspec import Struct

from forge_jobs.model.ids import HostId
from forge_jobs.runtime.shared.service import LoopHealth


class QueueHealth(Struct, frozen=True, kw_only=True):
    """One queue on this pod.

    :param running: handlers, threads that outlived their time included
    :param held_ahead: claims not started yet
    :param waiting_ends: ends of claims that the store has not taken yet
    :param set_aside: which of these it does not take while it takes others, a line for each reason
    :param store_failures: calls in a row that the store did not answer
    :param silent: its part of the store does not answer beats, while other parts do
    :param unreadable: what of the queue's record cannot be read, or on Redis which of the queue's
        keys, "" for nothing
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

    :param problems: why it is not able to claim; empty when it is
    :param last_beat_ago: seconds since the last beat that renewed the lease was sent; None
        before the first
    :param lost_claims: claims that turned out to be somebody else's, since the start
    :param overruns: handlers that went on past the timeout of their job, since the start
    :param blocked_count: how often the event loop was found blocked
    :param stuck: handlers that were told to stop and have not ended
    :param unlogged: reports of this process that the log did not take, since its start
    :param overdue: loops that have had no good pass for half a minute longer than they should
    :param set_aside: revivals of jobs of dead pods, and news for children, that the store refuses
        while it takes others, a line for each reason. Ends are set aside queue by queue
    :param listening: hints of other pods arrive at once; False: they are found by polling
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
        """It beats, holds its lease, reaches the store, and its event loop runs."""
        return not self.problems
