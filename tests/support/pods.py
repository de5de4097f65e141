"""Real worker processes, to be stopped, killed and frozen.

They are forked from a server process that has imported everything once, so that a test can
afford to start and kill fifty of them.
"""

import logging
import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import anyio
import psutil
from msgspec import Struct, structs

from forge_jobs import RuntimeSettings
from forge_jobs.cli import last_exit
from forge_jobs.cli.serving import RunMode, run_worker
from forge_jobs.config import Deployment
from forge_jobs.runtime.pod import stopping
from tests.support.dying import die_while_firing
from tests.support.ledger_handlers import handlers, seeded_chain
from tests.support.limited_handlers import limited
from tests.support.points import die_at
from tests.support.waiting import wait_until

forkserver = multiprocessing.get_context("forkserver")
forkserver.set_forkserver_preload(
    [
        "tests.support.pods",
        "forge_jobs.storage.sql.sqlite.opening",
        "forge_jobs.storage.sql.sqlite.store",
        "forge_jobs.storage.sql.postgres.store",
        "forge_jobs.storage.redis.opening",
    ]
)


def quick_settings(**overrides: object) -> RuntimeSettings:
    """Settings with which a death is noticed in about three seconds."""
    settings = RuntimeSettings(
        heartbeat_interval=timedelta(seconds=0.3),
        lease=timedelta(seconds=2),
        fence_margin=timedelta(seconds=0.6),
        leader_lease=timedelta(seconds=1),
        grace=timedelta(seconds=5),
        reap_interval=timedelta(seconds=0.2),
        coordinate_interval=timedelta(seconds=0.1),
        cron_interval=timedelta(seconds=0.5),
        event_flush_interval=timedelta(seconds=0.5),
    )
    return structs.replace(settings, **overrides)


class PodPlan(Struct, frozen=True, kw_only=True):
    """The configuration of a worker process.

    :param log: file for the log and the standard streams
    :param clock_off: seconds by which the wall clock is ahead of the machine's
    :param death: how the process dies while it fires schedules: which call, seconds into it, marker
    :param dies_at: the stop point at which the process dies, the visit, marker
    :param seed: the arguments of a seeded ``ledger.chain`` in the queue ``work``
    :param has_limits: the handlers are those with limits by key
    :param to_store: seconds that a store has at a stop, at least. 0: the product's
    """

    url: str
    queues: Mapping[str, int]
    log: str
    settings: RuntimeSettings
    clock_off: float = 0.0
    death: tuple[int, float, str] | None = None
    dies_at: tuple[str, int, str] | None = None
    seed: Mapping[str, str | int] | None = None
    has_limits: bool = False
    to_store: float = 0.0


def _end_with_the_test() -> None:
    """End with the test: a pod whose test was killed would look for its store for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(plan: PodPlan) -> None:
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    log = os.open(plan.log, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(process)d %(asctime)s %(levelname)s %(message)s",
    )
    # A forked child has the parent's dispositions. A worker sets new ones.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if plan.clock_off:
        right, off_ns = time.time_ns, int(plan.clock_off * 1e9)
        time.time_ns = lambda: right() + off_ns
    if plan.to_store:
        stopping._TO_STORE = plan.to_store
        last_exit.BEYOND_GRACE = plan.to_store + 1
    if plan.death is not None:
        call, after, marker = plan.death
        die_while_firing(call, after, Path(marker))
    if plan.dies_at is not None:
        point, visit, marker = plan.dies_at
        die_at(point, visit, Path(marker))
    deployment = Deployment(queues=plan.queues, storage_url=plan.url, runtime=plan.settings)
    registry = handlers if plan.seed is None else seeded_chain(plan.seed)
    if plan.has_limits:
        registry = limited
    # As the worker command does.
    raise SystemExit(run_worker(deployment, registry, RunMode.FOREVER))


class PodProcess:
    """A worker process, which is gone when the test ends."""

    def __init__(self, plan: PodPlan) -> None:
        self._plan = plan
        self._process: ForkServerProcess = forkserver.Process(
            target=_run, args=(plan,), daemon=True
        )
        self._process.start()

    @property
    def process_id(self) -> int:
        """Return the process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return None while the process runs, and minus the signal's number after a kill."""
        return self._process.exitcode

    def send(self, signum: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(self.process_id, signum)

    def kill(self) -> None:
        """SIGKILL the process, and wait for the end."""
        self._process.kill()
        self._process.join()

    async def freeze(self) -> None:
        """SIGSTOP the process.

        On SQLite while the test holds the file's write lock: a process that stops inside a
        transaction would hold back every other writer for as long as the process is frozen.
        """
        if not self._plan.url.startswith("sqlite"):
            await self._stopped()
            return
        database = self._plan.url.removeprefix("sqlite:///").partition("?")[0]
        with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            await self._stopped()

    async def _stopped(self) -> None:
        self.send(signal.SIGSTOP)
        process = psutil.Process(self.process_id)
        await wait_until(
            lambda: process.status() == psutil.STATUS_STOPPED, description="it is frozen"
        )

    async def wait(self, at_most: float = 100) -> int:
        """Wait for the end of the process, and return the exit code."""
        with anyio.fail_after(at_most):
            await anyio.to_thread.run_sync(self._process.join, at_most, abandon_on_cancel=True)
        assert self.exit_code is not None, "the worker process is still running"
        return self.exit_code


class Fleet:
    """Worker processes on one store."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.log = folder / "pods.log"
        self.pods: list[PodProcess] = []

    def start(
        self,
        queues: Mapping[str, int],
        settings: RuntimeSettings | None = None,
        *,
        url: str = "",
        clock_off: float = 0.0,
        death: tuple[int, float, str] | None = None,
        dies_at: tuple[str, int, str] | None = None,
        seed: Mapping[str, str | int] | None = None,
        has_limits: bool = False,
        to_store: float = 0.0,
    ) -> PodProcess:
        """Start one more pod that declares ``queues`` (name -> max_workers).

        :param url: another way to the store
        :param clock_off: seconds by which the pod's wall clock is ahead of the machine's
        :param death, dies_at, seed, has_limits, to_store: see :class:`PodPlan`
        """
        plan = PodPlan(
            url=url or self.url,
            queues=queues,
            log=str(self.log),
            settings=settings or quick_settings(),
            clock_off=clock_off,
            death=death,
            dies_at=dies_at,
            seed=seed,
            has_limits=has_limits,
            to_store=to_store,
        )
        pod = PodProcess(plan)
        self.pods.append(pod)
        return pod


@contextmanager
def fleet(url: str, folder: Path) -> Iterator[Fleet]:
    """A fleet of which nothing is left afterwards."""
    pods = Fleet(url, folder)
    try:
        yield pods
    finally:
        for pod in pods.pods:
            pod.kill()
