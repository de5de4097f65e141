"""The read of the board."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from forge_jobs.errors import PartlyUnavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import WorkerState
from forge_jobs.model.progress import JobState
from forge_jobs.model.queues import ENDED_COUNTED
from forge_jobs.operating.access import Right
from forge_jobs.operating.board.documents import Board, QueueLine, Run
from forge_jobs.operating.health.calls import StoreCalls
from forge_jobs.operating.hiding import hide_state
from forge_jobs.operating.settings.serving import NO_COUNTS, service
from forge_jobs.policy.explanations import name_of

_ZERO = timedelta(0)


class BoardCalls(StoreCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def board(self, *, most_runs: int = 100) -> Board:
        """Queues, pods and running jobs of this moment. Not one atomic step.

        Six calls of the store, however much there is. Queues whose part of the store is silent
        show zeros.

        :param most_runs: running jobs to show, the longest first. 0 to 1,000
        """
        self.actor.need(Right.READ)
        now = await self.storage.cron.now()
        states = [each for each in await self.storage.config.queues() if self.actor.sees(each.name)]
        counts = await self.storage.jobs.counts(ended_at_most=ENDED_COUNTED)
        pods = (await self.list_pods()).pods
        workers = await self._longest(most_runs)
        runs = await self._runs(now, workers[0], {pod.pod.host_id: name_of(pod) for pod in pods})
        queues = []
        for state in states:
            of_queue = counts.get(state.name, NO_COUNTS)
            serving = service(state, of_queue, pods)
            queues.append(
                QueueLine(
                    name=state.name,
                    running=of_queue.running,
                    granted=serving.granted,
                    max_workers=state.settings.max_workers,
                    due=of_queue.due,
                    oldest_due_for=of_queue.oldest_due_for,
                    dead=of_queue.by_status.get(JobStatus.DEAD, 0),
                    paused=state.paused,
                    standing=serving.standing,
                )
            )
        return Board(
            store=self.storage.name,
            at=now,
            queues=tuple(queues),
            pods=pods,
            runs=runs,
            more_runs=workers[1],
        )

    async def _longest(self, at_most: int) -> tuple[Sequence[WorkerState], int]:
        """Return the workers with the longest runs, and how many are left out."""
        mine = [each for each in await self.storage.procs.workers() if self.actor.sees(each.queue)]
        mine.sort(key=lambda each: (each.started_at, each.job_id))
        shown = mine[: max(min(at_most, 1_000), 0)]
        return shown, len(mine) - len(shown)

    async def _runs(
        self, now: datetime, workers: Sequence[WorkerState], names: Mapping[str, str]
    ) -> tuple[Run, ...]:
        states = await self._states([each.job_id for each in workers])
        runs = []
        for each in workers:
            state = states.get(each.job_id)
            if self.redaction or not self.actor.access.payloads:
                state = hide_state(state)
            runs.append(
                Run(
                    job_id=each.job_id,
                    queue=each.queue,
                    kind=each.kind,
                    pod=names.get(each.host_id, each.host_id),
                    started_at=each.started_at,
                    running_for=max(now - each.started_at, _ZERO),
                    cancel_requested=each.cancel_requested,
                    attempt=state.attempt if state else 0,
                    progress=state.progress if state else None,
                )
            )
        return tuple(runs)

    async def _states(self, ids: list[JobId]) -> Mapping[JobId, JobState]:
        if not ids:
            return {}
        try:
            return await self.storage.jobs.states(ids)
        except PartlyUnavailable as error:
            return error.found
