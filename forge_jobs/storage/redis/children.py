"""The news of a parent's end, and how it reaches the children.

The news lies with the parent, the edge with the child, in another slot. So the child is changed
first, by what its edge says; then the news is forgotten. Whoever stops in between leaves news that
are void.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Delivery, Handover
from forge_jobs.storage.redis.database import Database
from forge_jobs.storage.redis.fleet import in_all_queues
from forge_jobs.storage.redis.keys import queue_of, queue_tag

_APPLIED, _EARLY = "applied", "early"


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
    for delivery in deliveries:
        news = delivery.handover
        base = db.keys.queue(news.queue)
        ended = int(news.id.split()[2])
        requests[base].append((news.child_id, news.parent_id, delivery.action, ended))
        of_base[base].append(news)
    answers = await db.run("deliver", requests, list[str])
    told = [
        news
        for base, outcomes in answers.items()
        for news, outcome in zip(of_base[base], outcomes, strict=True)
        if outcome != _EARLY
    ]
    await _forget(db, told)
    return sum(outcomes.count(_APPLIED) for outcomes in answers.values())


async def _forget(db: Database, told: Sequence[Handover]) -> None:
    requests: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for news in told:
        tag, seq, _, _ = news.id.split()
        base = db.keys.queue(queue_of(tag))
        requests[base].append((seq, news.parent_id, news.parent_status.value, news.child_id))
    await db.run("told", requests, bool)


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
