"""Schedules that are declared beside their handlers."""

from datetime import timedelta

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.schedules import declared_schedules, ensure_schedules, trigger_now
from forge_jobs.errors import InvalidInput, RegistrationError
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Unique
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until


def test_a_decorated_handler_brings_its_schedule_with_its_defaults() -> None:
    handlers = HandlerRegistry()

    @handlers.cron(
        "30 2 * * *",
        timezone="Europe/Berlin",
        overlap="skip",
        jitter=timedelta(minutes=5),
        arguments={"repo": "octo/repo"},
    )
    @handlers.cron("@every 1h", name="hourly", arguments={"repo": "my/repo"})
    @handlers.job("report", queue="reports", max_attempts=2)
    def report(repo: str) -> str:
        return repo

    hourly, nightly = declared_schedules(handlers, None)

    assert report("plain function") == "plain function"
    assert (hourly.name, hourly.expression, hourly.payload) == (
        "hourly",
        "@every 1h",
        '{"repo":"my/repo"}',
    )
    assert (nightly.name, nightly.kind, nightly.queue) == ("report", "report", "reports")
    assert (nightly.timezone, nightly.overlap, nightly.max_attempts) == ("Europe/Berlin", "skip", 2)
    assert nightly.jitter == timedelta(minutes=5)


def test_what_is_wrong_is_told_where_it_is_written() -> None:
    handlers = HandlerRegistry()

    with pytest.raises(InvalidInput, match="expression"):
        handlers.cron("61 * * * *")
    with pytest.raises(InvalidInput, match="timezone"):
        handlers.cron("@daily", timezone="Mars/Olympus")
    with pytest.raises(RegistrationError, match=r"above @handlers\.job"):
        handlers.cron("@daily")(print)  # type: ignore[arg-type]


def test_two_handlers_cannot_share_a_schedule_and_a_reload_is_none() -> None:
    handlers, other = HandlerRegistry(), HandlerRegistry()

    def one() -> None: ...
    def two() -> None: ...

    for _ in range(2):
        handlers.cron("@daily", name="nightly")(handlers.register(one, "one"))
    with pytest.raises(RegistrationError, match="nightly"):
        handlers.cron("@daily", name="nightly")(handlers.register(two, "two"))

    other.cron("@hourly", name="hourly")(other.register(two, "three"))
    handlers.include(other)
    assert [each.name for each in handlers.recurring()] == ["nightly", "hourly"]
    clash = HandlerRegistry()
    clash.cron("@daily", name="hourly")(clash.register(one, "four"))
    with pytest.raises(RegistrationError, match="hourly"):
        handlers.include(clash)
    assert "four" not in handlers


@pytest.mark.anyio
async def test_a_runtime_declares_and_fires_it(storage: Storage) -> None:
    handlers = HandlerRegistry()
    ran: list[int] = []

    @handlers.cron("@every 1s", name="tick", arguments={"n": 7})
    @handlers.job("tick")
    async def tick(n: int) -> None:
        ran.append(n)

    async with a_runtime(storage, handlers).start():
        await wait_until(lambda: ran, description="it fires")

    assert ran[0] == 7
    stored = await storage.cron.get_schedule("tick")
    assert stored is not None
    assert stored.fired >= 1


@pytest.mark.anyio
@pytest.mark.any_store
async def test_its_jobs_have_no_key_of_the_handler(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.cron("@daily", name="nightly")
    @handlers.job("sync", unique=Unique("only"))
    async def sync() -> None: ...

    await ensure_schedules(storage.cron, declared_schedules(handlers, None))
    async with JobClient(storage, handlers) as client:
        by_program = await client.enqueue(sync.request())
        by_schedule = [await trigger_now(storage, "nightly") for _ in range(2)]
        again = await client.enqueue(sync.request())
    assert not by_program.deduplicated
    assert not any(each.deduplicated for each in by_schedule)
    assert (again.job_id, again.deduplicated) == (by_program.job_id, True)
