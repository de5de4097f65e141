"""A program knows for a while which queues have rows, and a deleted queue is made again."""

from pathlib import Path
from typing import Any

import pytest

from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, forget
from tests.support.factories import enqueue_one, only

pytestmark = pytest.mark.anyio

QUEUE = "tenant-7"


async def names(storage: Storage) -> list[str]:
    return [each.name for each in await storage.config.queues()]


def let_a_minute_pass(storage: Storage) -> None:
    """Let what the program knows of queues be as old as a minute makes it."""
    held: Any = storage.jobs
    database = held._database
    holder = database if hasattr(database, "_known_until") else database._writer
    assert holder._known_queues
    holder._known_until = 0.0


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
@pytest.mark.parametrize("verb", ["enqueue", "set"])
async def test_a_queue_that_another_program_has_deleted_is_listed_again_with_its_next_job(
    backend: str, verb: str, tmp_path: Path
) -> None:
    opened = BACKENDS[backend]
    async with opened(tmp_path, None) as producer, opened(tmp_path, None) as operator:
        first = await enqueue_one(producer, queue=QUEUE)
        assert (await operator.jobs.delete(only(first))).changed == (first,)
        await operator.config.delete_queue(QUEUE)
        assert QUEUE not in await names(operator)

        let_a_minute_pass(producer)
        if verb == "set":
            # Any call of the program will do.
            await producer.config.set_queue("other", QueueChange(max_workers=2))
        again = await enqueue_one(producer, queue=QUEUE)
        assert QUEUE in await names(operator)
        stored = await operator.jobs.get([again])
        assert stored[again].status is JobStatus.PENDING
    await forget(backend, tmp_path)
