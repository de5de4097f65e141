"""``forge-jobs doctor`` names what retention has to leave, and records that cannot be read."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import Table

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.queues import QueueSettings, RateLimit, Retention
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base import tables
from tests.cli.conftest import CommandLine
from tests.support.backends import url_of
from tests.support.factories import KIND, QUEUE, claim, done, enqueue_one, finish, register
from tests.support.runtimes import a_runtime, quick_settings, seconds
from tests.support.spoiling import execute, redis_commands, spoil_row
from tests.support.waiting import wait_until

SPOILT = "spoilt {"
_LONG_AGO = timedelta(days=40) // timedelta.resolution

_KEEP = {
    # SQLite enforces no foreign keys of other programs, but triggers.
    "sqlite": (
        "CREATE TRIGGER theirs BEFORE DELETE ON forge_jobs WHEN OLD.id = '{id}' "
        "BEGIN SELECT RAISE(ABORT, 'an invoice refers to it'); END",
    ),
    "postgres": (
        "CREATE TABLE invoices (job_id TEXT REFERENCES forge_jobs (id))",
        "INSERT INTO invoices VALUES ('{id}')",
    ),
}
"""References of a user's table that keep one job from removal."""

Work = Callable[[Storage], Awaitable[Any]]


class Installation:
    """A store, the command line on that store, and the files or server behind it."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.backend, self.folder = backend, folder
        self.url = anyio.run(url_of, backend, folder)
        CommandLine(self.url)("migrate", "up")

    def run(self, work: Work) -> Any:
        """Do something with the store."""

        async def open_and_work() -> Any:
            async with await open_storage(self.url) as storage:
                return await work(storage)

        return anyio.run(open_and_work)

    async def spoil(
        self, table: Table, key: dict[str, str], column: str, entry: str, wrong: object = SPOILT
    ) -> None:
        """Write nonsense over one field.

        :param entry: the part of the key on Redis, and behind a space the field
        """
        if self.backend != "redis":
            await spoil_row(self.backend, self.folder, table, key, {column: wrong})
            return
        name, _, field = entry.partition(" ")
        base, _, name = name.rpartition("/")
        await redis_commands(self.backend, self.folder, base, ("HSET", name, field, SPOILT))

    def finding(self, check: str, state: str, *, code: int = 1) -> str:
        """Return the finding of ``doctor`` for one check.

        :param code: the exit code, 1 when any check fails
        """
        document = CommandLine(self.url).json("doctor", code=code)
        [found] = [each for each in document["findings"] if each["check"] == check]
        assert found["state"] == state
        return str(found["text"])


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    return Installation(request.param, tmp_path)


@pytest.mark.parametrize("installed", ["sqlite", "postgres"], indirect=True)
def test_jobs_that_the_database_keeps_from_retention(installed: Installation) -> None:
    async def keep_one(storage: Storage) -> None:
        await storage.config.ensure_queue(
            QUEUE, QueueSettings(retention=Retention(done=seconds(0)))
        )
        lease = await register(storage)
        ids = [await enqueue_one(storage) for _ in range(3)]
        for claimed in await claim(storage, lease, limit=3):
            assert await finish(storage, claimed, done())
        await execute(
            installed.backend,
            installed.folder,
            *(each.format(id=ids[1]) for each in _KEEP[installed.backend]),
            # No job goes in its first minute.
            f"UPDATE forge_jobs SET finished_at = finished_at - {_LONG_AGO}",
        )
        settings = quick_settings(cleanup_interval=seconds(0.1), rollup_interval=seconds(0.1))
        runtime = a_runtime(storage, HandlerRegistry(), settings=settings)
        async with runtime.start():

            async def told() -> bool:
                pods = await storage.procs.pods()
                return any(pod.gauges is not None and pod.gauges.kept for pod in pods)

            await wait_until(told, description="the leader has told what retention has met")
            look = partial(installed.finding, "retention", "warn", code=0)
            text = await anyio.to_thread.run_sync(look)
            assert {*await storage.jobs.get(ids)} == {ids[1]}
            assert text.startswith(
                f"jobs are past their retention and stay, for example job {ids[1]}"
            )

    installed.run(keep_one)


def test_a_queue_and_its_job(installed: Installation) -> None:
    async def spoil(storage: Storage) -> str:
        job_id = await enqueue_one(storage)
        await installed.spoil(
            tables.queues, {"name": QUEUE}, "retention", f"{QUEUE}/queue retention"
        )
        await installed.spoil(tables.jobs, {"id": job_id}, "tags", f"{QUEUE}/j:{job_id} doc")
        assert await claim(storage, await register(storage)) == []
        return job_id

    job_id = installed.run(spoil)

    text = installed.finding("settings", "fail")
    assert text.startswith(f"the record of '{QUEUE}' cannot be read, defaults stand for it: ")
    text = installed.finding("held", "fail")
    assert text.startswith(
        f"1 job of '{QUEUE}' with a record that cannot be read, for example {job_id}"
    )


def test_a_pod_a_schedule_and_a_rate_limit(installed: Installation) -> None:
    async def spoil(storage: Storage) -> None:
        lease = await register(storage)
        spec = ScheduleSpec(name="nightly", queue=QUEUE, kind=KIND, expression="@daily")
        await storage.cron.put_schedule(spec, None)
        await storage.config.set_rate_limit("smtp", RateLimit(5, per=seconds(60)))
        pod = f"/pod:{lease.host_id} doc"
        await installed.spoil(tables.pods, {"host_id": lease.host_id}, "queues", pod)
        name = {"name": "nightly"}
        await installed.spoil(tables.schedules, name, "spec", "/schedules nightly")
        await installed.spoil(
            tables.rate_limits, {"scope": "smtp"}, "period_us", "/limits smtp", 2**62
        )

    installed.run(spoil)

    assert installed.finding("pods", "warn").startswith("1 pod with a record that cannot be read, ")
    assert "'nightly' (" in installed.finding("schedules", "fail")
    assert "'smtp' (" in installed.finding("rate limits", "fail")


def test_a_limit_by_key_and_a_strike(installed: Installation) -> None:
    async def spoil(storage: Storage) -> None:
        await storage.config.ensure_limits(QUEUE, {"hosts": 2})
        await storage.config.put_strike("no mail", StrikeRule(kind=KIND), "ada")
        limit = {"queue": QUEUE, "name": "hosts"}
        await installed.spoil(tables.limits, limit, "at_most", f"{QUEUE}/at_most hosts", 0)
        strike = {"name": "no mail"}
        await installed.spoil(tables.strikes, strike, "rule", "/strikes no mail")

    installed.run(spoil)

    assert f"{QUEUE}/hosts (at_most is " in installed.finding("limits", "fail")
    assert "'no mail' (" in installed.finding("strikes", "fail")


@pytest.mark.parametrize("installed", ["redis"], indirect=True)
def test_a_key_of_another_type(installed: Installation) -> None:
    async def spoil(storage: Storage) -> None:
        await enqueue_one(storage)
        await redis_commands("redis", installed.folder, QUEUE, ("SET", "events", SPOILT))

    assert "each holds what it must" in installed.finding("keys", "ok", code=0)
    installed.run(spoil)
    text = installed.finding("keys", "fail")
    assert text.startswith(f"queue {QUEUE}: the key ")
    assert ":events does not hold a sorted set; put back what belongs there, from a backup" in text
