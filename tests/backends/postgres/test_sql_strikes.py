"""Strikes and ``forge_enqueue``: what SQL stores is judged before the run."""

import pytest

from forge_jobs import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Hold
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.storage.protocols import Storage
from tests.support.postgres import raw
from tests.support.runtimes import a_runtime, ended, job_because

pytestmark = pytest.mark.anyio


async def test_what_sql_enqueues_is_judged_before_the_run(storage: Storage, url: str) -> None:
    handlers, ran = HandlerRegistry(), list[int]()

    async def pay(amount: int) -> None:
        ran.append(amount)

    handlers.register(pay, "pay", max_attempts=1)
    await storage.config.put_strike("seven", StrikeRule(where="amount == 7"), "ada")
    async with a_runtime(storage, handlers).start():
        async with raw(url) as connection:
            seven, eight = [
                JobId(
                    await connection.fetchval(
                        "SELECT forge_enqueue('pay', $1, queue => 'default')",
                        f'{{"amount": {amount}}}',
                    )
                )
                for amount in (7, 8)
            ]
        await ended(storage, eight)
        held = await job_because(storage, seven, Cause.STRUCK)
        assert (held.hold, held.struck_by, ran) == (Hold.STRUCK, "seven", [8])
        await storage.config.lift_strike("seven")
        await ended(storage, seven)
    assert ran == [8, 7]
