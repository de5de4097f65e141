"""A pod whose standard error is not read."""

import subprocess
import sys
from pathlib import Path

import pytest

from forge_jobs.runtime.heartbeat.thread import HUNG_EXIT_CODE
from forge_jobs.storage.opening import open_storage
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def test_a_pod_that_hangs_in_a_full_pipe_is_given_up(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    command = [sys.executable, "-m", "tests.support.talkative", url]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:  # noqa: ASYNC220 - at once
        try:
            async with await open_storage(url) as storage:

                async def runs() -> bool:
                    return any(pod.in_progress for pod in await storage.procs.pods())

                await wait_until(runs, description="its job runs")
                await wait_until(lambda: process.poll() is not None, description="it has ended")
                assert process.returncode == HUNG_EXIT_CODE
        finally:
            process.kill()
