"""Retry policies that are stored with a queue."""

from datetime import timedelta

import pytest

from forge_jobs.model.queues import QueueChange, QueueSettings
from forge_jobs.model.retries import Delays, Exponential, Fixed, Linear, Retry
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "policy",
    [
        Exponential(base=timedelta(microseconds=7), factor=1.5, cap=timedelta(days=2)),
        Exponential(jitter=False),
        Linear(timedelta(seconds=3), timedelta(minutes=1)),
        Fixed(timedelta(milliseconds=250), jitter=False),
        Delays((timedelta(seconds=1), timedelta(minutes=5))),
        None,
    ],
)
async def test_a_retry_policy_comes_back_as_it_was_declared(
    storage: Storage, policy: Retry | None
) -> None:
    declared = QueueSettings(retry=policy)

    assert (await storage.config.ensure_queue(QUEUE, declared)).settings == declared


async def test_an_operators_policy_stays_over_declarations(storage: Storage) -> None:
    mine = Fixed(timedelta(seconds=9))
    await storage.config.set_queue(QUEUE, QueueChange(retry=mine))

    state = await storage.config.ensure_queue(QUEUE, QueueSettings(retry=Exponential()))

    assert (state.settings.retry, state.overridden) == (mine, frozenset({"retry"}))
