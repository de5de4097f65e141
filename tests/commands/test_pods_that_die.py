"""Pods that are killed while commands run: no process is left."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from forge_jobs import JobClient, QueueRuntime, open_storage
from tests.cluster.conftest import backend, client, storage, url
from tests.commands.test_orphans import GROUP, orphan_of
from tests.executors.test_processes import gone
from tests.support.commands import python, python_commands
from tests.support.pods import forkserver, quick_settings
from tests.support.process_handlers import FORKS_TWICE

__all__ = ["backend", "client", "storage", "url"]

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


def _serve(url: str, folder: Path) -> None:
    raise SystemExit(asyncio.run(_run(url, folder)))


async def _run(url: str, folder: Path) -> int:
    async with await open_storage(url) as opened:
        runtime = QueueRuntime(opened, python_commands(folder), settings=quick_settings())
        return await runtime.with_queues(default=2).run()


@contextmanager
def a_pod(url: str, folder: Path) -> Iterator[int]:
    """Run a pod in a separate process, until the end of the test."""
    process = forkserver.Process(target=_serve, args=(url, folder), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        process.kill()
        process.join()


async def test_a_worker_that_is_killed_leaves_no_command(
    url: str, client: JobClient, tmp_path: Path
) -> None:
    marks = [tmp_path / "orphan", tmp_path / "group"]
    with a_pod(url, tmp_path) as pod:
        for code, mark in zip((FORKS_TWICE, GROUP), marks, strict=True):
            await client.enqueue(python(code, str(mark), "600"))
        left = [await orphan_of(mark) for mark in marks]
        left += [each.pid for each in psutil.Process(pod).children(recursive=True)]
        assert len(set(left)) >= 6
        os.kill(pod, signal.SIGKILL)
        for process_id in left:
            await gone(process_id)
