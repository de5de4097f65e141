"""How queues stand to their objectives."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.metrics import HOUR, MINUTE
from forge_jobs.model.processes import PodState
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.model.series import SeriesAsk, SeriesStep
from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.snapshots.pods_wanted import pods_wanted
from forge_jobs.operating.snapshots.series import delays_of
from forge_jobs.policy.judgement.desired_pods import DesiredPods
from forge_jobs.policy.judgement.objectives import DAY, MONTH, overdue, standing
from forge_jobs.storage.protocols import Storage

_ENDED_COUNTED = 1


class ObjectiveView(Struct, frozen=True, kw_only=True):
    """How a queue stands to its objective.

    :param objective: as ``95% within 30s``
    :param by_operator: an operator has set the objective
    :param met_1h: share of the jobs of the last hour that started in time, 0 to 1. Jobs that wait
        for longer than allowed count as late. None when none was due
    :param met_24h: of the last day
    :param met_30d: of the last 30 days
    :param budget_left: of the 30 days: 1 when no job was late, 0 when as many were late as may be,
        below 0 beyond that
    :param burn_5m: the share that was late in 5 minutes over the share that may be
    :param burn_1h: the same of an hour
    :param is_burning: both are at least 14.4
    :param desired: how many pods keep the objective, as ``Operator.desired_pods`` says
    """

    queue: str
    objective: str
    by_operator: bool
    met_1h: float | None
    met_24h: float | None
    met_30d: float | None
    budget_left: float
    burn_5m: float
    burn_1h: float
    is_burning: bool
    desired: DesiredPods


class Objectives(Struct, frozen=True):
    """The queues that have an objective, by name."""

    objectives: tuple[ObjectiveView, ...]


class ObjectiveCalls(Calls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_objectives(self) -> Objectives:
        """How each queue with an objective stands: the share met, the budget left, the burn.

        And how many pods each wants. Five calls of the store, however many queues there are.
        """
        self.actor.need(Right.READ)
        queues = [each for each in await self.storage.config.queues() if self.actor.sees(each.name)]
        if not any(each.settings.objective for each in queues):
            return Objectives(())
        counts = await self.storage.jobs.counts(ended_at_most=_ENDED_COUNTED)
        pods = await self.storage.procs.pods()
        now = await self.storage.cron.now()
        return Objectives(tuple(await read_objectives(self.storage, now, queues, counts, pods)))


async def read_objectives(
    storage: Storage,
    now: datetime,
    queues: Iterable[QueueState],
    counts: Mapping[str, QueueCounts],
    pods: Sequence[PodState],
) -> list[ObjectiveView]:
    """Read how queues stand to their objectives: one call, none without an objective.

    :raises Unavailable: the store is silent
    """
    with_aim = [queue for queue in queues if queue.settings.objective]
    if not with_aim:
        return []
    # Minutes of the last hours, and whole hours before those: each start counts once.
    split = (now - HOUR).replace(minute=0, second=0, microsecond=0)
    asked: list[SeriesAsk] = []
    for queue in with_aim:
        name = queue.name
        asked.append(SeriesAsk(since=split, until=now + MINUTE, queue=name))
        asked.append(SeriesAsk(since=split - MONTH, until=split, step=HOUR, queue=name))
    found = await storage.jobs.many_series(asked)
    pairs = zip(found[::2], found[1::2], strict=True)
    return [
        _view(queue, counts.get(queue.name), hours, minutes, pods, now)
        for queue, (minutes, hours) in zip(with_aim, pairs, strict=True)
    ]


def _view(  # noqa: PLR0917 - the readings it weighs, one parameter each
    queue: QueueState,
    counts: QueueCounts | None,
    hours: Sequence[SeriesStep],
    minutes: Sequence[SeriesStep],
    pods: Sequence[PodState],
    now: datetime,
) -> ObjectiveView:
    aim = queue.settings.aim
    assert aim is not None
    due, oldest = (counts.due, counts.oldest_due_for) if counts else (0, timedelta(0))
    delays = delays_of([*hours, *minutes])
    stands = standing(aim, delays, now, overdue=overdue(due, oldest, aim.within))
    return ObjectiveView(
        queue=queue.name,
        objective=queue.settings.objective,
        by_operator="objective" in queue.overridden,
        met_1h=stands.met[HOUR],
        met_24h=stands.met[DAY],
        met_30d=stands.met[MONTH],
        budget_left=stands.budget_left,
        burn_5m=stands.burn_short,
        burn_1h=stands.burn_long,
        is_burning=stands.is_burning,
        desired=pods_wanted(queue, aim, counts, minutes, pods, now),
    )
