"""The throughput of a cluster before the loss of a shard, and during the loss."""

from collections.abc import Collection
from dataclasses import dataclass

from tests.chaos.record import Record, ShardLoss
from tests.support.ledger import Ledger


@dataclass(frozen=True)
class Loss:
    """Counts of jobs that ended in two windows of time, just before the loss and from then on.

    :ivar others: in queues of the other shards
    :ivar own: in queues of the lost one
    :ivar starts: of each of those queues, seconds from the promotion to the next start of a job
    """

    name: str
    others: tuple[int, int]
    own: tuple[int, int]
    starts: Collection[float]

    @property
    def ratio(self) -> float:
        """Return the throughput of the other shards, relative to the time before."""
        before, during = self.others
        return during / before if before else 0.0


def losses_of(record: Record, ledger: Ledger) -> list[Loss]:
    """Return an entry for each loss of a shard."""
    return [_loss(loss, record, ledger) for loss in record.losses]


def _loss(loss: ShardLoss, record: Record, ledger: Ledger) -> Loss:
    counts = {False: [0, 0], True: [0, 0]}
    first: dict[str, int] = {}
    for run in ledger.runs:
        queue = record.queue_of(run.job_id)
        is_own = queue in loss.queues
        if is_own and run.started_ns > loss.promoted_ns:
            first.setdefault(queue, run.started_ns)
        if run.ended_ns is not None:
            window = (run.ended_ns - loss.from_ns) // loss.window_ns + 1
            if window in (0, 1):
                counts[is_own][window] += 1
    before, during = counts[False]
    own_before, own_during = counts[True]
    starts = [(at_ns - loss.promoted_ns) / 1e9 for at_ns in first.values()]
    return Loss(loss.name, (before, during), (own_before, own_during), starts)
