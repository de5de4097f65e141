"""The contents of payloads and results stay out of the log."""

import logging
from functools import partial
from typing import Any

import pytest

from forge_jobs.handlers.outcomes import Snoozed
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, job_because
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

SECRET = "a-payload-nobody-should-see"


def _is_told(caplog: pytest.LogCaptureFixture, job_id: JobId) -> bool:
    return job_id in caplog.text


async def test_no_log_line_holds_a_payload_or_a_result(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("echo")
    async def echo(text: str) -> str:
        return text

    @handlers.job("fail", max_attempts=1)
    async def fail(text: str) -> None:
        raise ValueError("without the text")

    @handlers.job("later")
    def later(text: str) -> None:
        raise Snoozed(3600)

    caplog.set_level(logging.DEBUG)
    ends: dict[Any, Cause] = {echo: Cause.SUCCEEDED, fail: Cause.FAILED, later: Cause.SNOOZED}
    async with a_runtime(storage, handlers, 2).start() as handle:
        for handler, cause in ends.items():
            outcome = await handle.enqueue(handler.request(SECRET), metadata={"who": SECRET})
            await job_because(storage, outcome.job_id, cause)
            await wait_until(partial(_is_told, caplog, outcome.job_id), description="told")
    assert SECRET not in caplog.text
    assert all(SECRET not in str(vars(record)) for record in caplog.records)
