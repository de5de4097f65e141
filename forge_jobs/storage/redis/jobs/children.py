"""The news of a parent's end, and how it reaches the children.

The news lies with the parent, the edge with the child, in another slot. So the child is changed
first, by what its edge says; then the news is forgotten. Whoever stops in between leaves news that
are void: the edge knows the number of the newest news that counted.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Delivery, Handover
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues
from forge_jobs.storage.redis.keys import queue_of, queue_tag

_WAITS = "wait"


class _News(msgspec.Struct, frozen=True, array_like=True):
    """What ``handovers.lua`` answers.

    :param seq: of the parent's record in its queue
    :param at: when the parent ended
    :param edge: the tag of the child's queue, and the failure policy
    """

    seq: str
    at: int
    parent: JobId
    status: JobStatus
    child: JobId
    edge: str


async def handovers(db: Database, limit: int) -> list[Handover]:
    """See ``JobStore.handovers``."""
    answers = await in_all_queues(db, "handovers", limit, list[_News])
    found = sorted(
        ((queue, news) for queue, listed in answers.items() for news in listed),
        key=lambda each: (each[1].at, each[0], int(each[1].seq), each[1].child),
    )
    return [_handover(queue, news) for queue, news in found[:limit]]


async def deliver(db: Database, deliveries: Sequence[Delivery]) -> int:
    """See ``JobStore.deliver``."""
    requests: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    of_base: defaultdict[str, list[Handover]] = defaultdict(list)
    for delivery in await _standing(db, deliveries):
        news = delivery.handover
        base = db.keys.queue(news.queue)
        seq = int(news.id.split()[1])
        requests[base].append((news.child_id, news.parent_id, delivery.action, seq))
        of_base[base].append(news)
    # News of children that do not answer stay.
    answers, _ = await db.run_some("deliver", requests, list[tuple[bool, str]])
    told = [
        (news, word == _WAITS)
        for base, outcomes in answers.items()
        for news, (_, word) in zip(of_base[base], outcomes, strict=True)
    ]
    await _forget(db, told)
    return sum(was_applied for outcomes in answers.values() for was_applied, _ in outcomes)


async def _standing(db: Database, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Those whose news are still to be told: the parent may have been requeued meanwhile."""
    of_base: defaultdict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        of_base[_parents_base(db, delivery.handover)].append(delivery)
    requests = {
        base: [(each.handover.id.split()[1], each.handover.child_id) for each in listed]
        for base, listed in of_base.items()
    }
    answers, _ = await db.run_some("news_stand", requests, list[bool])
    return [
        each
        for base, stand in answers.items()
        for each, stands in zip(of_base[base], stand, strict=True)
        if stands
    ]


async def _forget(db: Database, told: Sequence[tuple[Handover, bool]]) -> None:
    requests: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for news, waits in told:
        _, seq, ended, _ = news.id.split()
        requests[_parents_base(db, news)].append(
            (seq, news.parent_id, news.parent_status.value, news.child_id, int(ended), waits)
        )
    await db.run_some("told", requests, bool)


def _parents_base(db: Database, news: Handover) -> str:
    return db.keys.queue(queue_of(news.id.split()[0]))


def _handover(queue: str, news: _News) -> Handover:
    tag, on_failure = news.edge.split()
    return Handover(
        id=f"{queue_tag(queue)} {news.seq} {news.at} {news.child}",
        queue=queue_of(tag),
        child_id=news.child,
        parent_id=news.parent,
        parent_status=news.status,
        on_failure=on_failure,
    )
