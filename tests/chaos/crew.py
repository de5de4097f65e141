"""The pods, and what is done to one of them at a time."""

import random
import signal
from functools import partial

from anyio.abc import TaskGroup

from forge_jobs.errors import Unavailable
from forge_jobs.storage.protocols import Storage
from tests.chaos.pace import Pace
from tests.chaos.record import Record, Stop, now_ns
from tests.chaos.stores import ChaosStore
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, PodProcess
from tests.support.waiting import wait_until

_TO_START = 180.0


class Crew:
    """Keeps the intended number of pods at work: a killed or stopped pod is replaced.

    :param store: gives the number of pods and their queues. The pods are spread over its ways
    :param watch: a view of the store that nothing disturbs
    :param background: finishes what takes longer than its round
    """

    def __init__(
        self,
        fleet: Fleet,
        store: ChaosStore,
        watch: Storage,
        pace: Pace,
        record: Record,
        ledger: Ledger,
        rng: random.Random,
        background: TaskGroup,
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._watch = watch
        self._pace = pace
        self._record = record
        self._ledger = ledger
        self._rng = rng
        self._background = background
        self.at_work: dict[int, PodProcess] = {}
        self._way_of: dict[int, str] = {}
        self._started_ns: dict[int, int] = {}

    def fill_up(self) -> None:
        """Start pods until all are there."""
        for _ in range(self._store.pods - len(self.at_work)):
            used = [self._way_of[process_id] for process_id in self.at_work]
            way = min(self._store.ways, key=used.count)
            pod = self._fleet.start(
                self._store.queues,
                self._pace.settings,
                url=way,
                has_limits=self._store.has_limits,
            )
            self.at_work[pod.process_id] = pod
            self._started_ns[pod.process_id] = now_ns()
            self._way_of[pod.process_id] = way

    def look_after(self) -> None:
        """Note pods that ended without being asked to, and replace them.

        A worker that is refused the login at the start ends at once, with a message. The
        replacement waits until the login is possible again.
        """
        for process_id, pod in list(self.at_work.items()):
            if pod.exit_code is not None:
                if not self._was_refused(process_id):
                    self._record.own_exits.append(process_id)
                del self.at_work[process_id]
        if not self._record.refuses_logins:
            self.fill_up()

    def _was_refused(self, process_id: int) -> bool:
        has_worked = self._ledger.starts[process_id] > 0
        return not has_worked and self._record.refused_logins_since(self._started_ns[process_id])

    async def all_run(self) -> None:
        """Wait until every pod has begun to run jobs."""
        await wait_until(
            lambda: all(self._ledger.starts[process_id] > 0 for process_id in self.at_work),
            description="every pod runs jobs",
            timeout=_TO_START,
        )

    def dismiss(self, pod: PodProcess, background: TaskGroup) -> None:
        """SIGTERM a pod that is not replaced. ``background`` waits for the end."""
        stop = Stop(pod.process_id, now_ns())
        del self.at_work[pod.process_id]
        self._record.stops[pod.process_id] = stop
        pod.send(signal.SIGTERM)
        background.start_soon(self._watch_exit, pod, stop)

    # -- deeds -------------------------------------------------------------------------------

    async def kill(self) -> None:
        """SIGKILL to any pod that runs jobs."""
        self._kill(await self._someone())

    async def kill_leader(self) -> None:
        """SIGKILL the pod that coordinates, and wait for the next leader."""
        leader = await self._leader()
        self._kill(leader)
        await self._succeeded(leader.process_id)
        self._record.succeeded_ns[leader.process_id] = now_ns()

    async def stop(self) -> None:
        """SIGTERM to any pod that runs jobs."""
        self._stop(await self._someone())

    async def stop_leader(self) -> None:
        """SIGTERM the pod that coordinates, and wait for the next leader."""
        leader = await self._leader()
        self._stop(leader)
        await self._succeeded(leader.process_id)
        self._record.succeeded_ns[leader.process_id] = now_ns()

    async def freeze(self) -> None:
        """SIGSTOP a pod that runs jobs, for longer than a lease, without waiting."""
        pod = await self._someone()
        self._record.frozen.add(pod.process_id)
        del self.at_work[pod.process_id]
        await pod.freeze()
        self._background.start_soon(self._thaw, pod)

    # -- inside ------------------------------------------------------------------------------

    async def _someone(self) -> PodProcess:
        """A pod that has begun to run jobs."""
        pod = self._rng.choice(list(self.at_work.values()))
        await wait_until(
            lambda: self._ledger.starts[pod.process_id] > 0 or pod.exit_code is not None,
            description=f"pod {pod.process_id} runs jobs",
            timeout=_TO_START,
        )
        return pod

    async def _leader(self) -> PodProcess:
        pod: PodProcess = await wait_until(
            self._leader_at_work, description="one of the pods at work leads", timeout=_TO_START
        )
        return pod

    async def _leader_at_work(self) -> PodProcess | None:
        return self.at_work.get(await self._leading())

    async def _leading(self) -> int:
        """Return the process id of the leader, 0 without a leader."""
        try:
            leader = await self._watch.cron.leader()
            pods = await self._watch.procs.pods()
        except Unavailable:
            return 0
        if leader is None or leader.remaining.total_seconds() <= 0:
            return 0
        by_host = {pod.pod.host_id: pod.pod.process_id for pod in pods}
        return by_host.get(leader.host_id, 0)

    async def _succeeded(self, process_id: int) -> None:
        await wait_until(
            partial(self._leads_but, process_id),
            description="another pod leads",
            timeout=_TO_START,
        )

    async def _leads_but(self, process_id: int) -> bool:
        return await self._leading() not in (0, process_id)

    def _kill(self, pod: PodProcess) -> None:
        del self.at_work[pod.process_id]
        self._record.kills[pod.process_id] = now_ns()
        pod.kill()
        self.fill_up()

    def _stop(self, pod: PodProcess) -> None:
        self.dismiss(pod, self._background)
        self.fill_up()

    async def _watch_exit(self, pod: PodProcess, stop: Stop) -> None:
        await wait_until(
            lambda: pod.exit_code is not None, description="a stopped pod ends", timeout=_TO_START
        )
        stop.exited_ns = now_ns()
        stop.exit_code = pod.exit_code

    async def _thaw(self, pod: PodProcess) -> None:
        until = now_ns() + 1.3 * self._pace.lease * 1e9
        await wait_until(lambda: now_ns() > until, description="it was frozen for long enough")
        pod.send(signal.SIGCONT)
        self.at_work[pod.process_id] = pod
