"""A worker process that kills itself at a point which no signal from outside would hit for sure."""

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forge_jobs.model.schedules import Firing
from forge_jobs.storage.redis.cron.store import RedisCronStore
from forge_jobs.storage.sql.cron.store import SqlCronStore


def die_while_firing(call: int, after: float, marker: Path) -> None:
    """SIGKILL this process in its ``call``-th call that fires schedules, at the end at the latest.

    Of processes with the same marker only the first one dies.

    :param after: seconds from the beginning of that call
    """
    calls = 0

    def fatal(real: Any) -> Any:
        async def fire(self: Any, firings: Sequence[Firing]) -> list[bool]:
            nonlocal calls
            calls += 1
            if calls < call or not _first(marker):
                return list(await real(self, firings))
            # A thread, for the event loop may be busy just then.
            threading.Timer(after, _die).start()
            await real(self, firings)
            _die()
            raise AssertionError("unreachable")

        return fire

    for store in (SqlCronStore, RedisCronStore):
        store.fire = fatal(store.fire)  # type: ignore[method-assign]


def _first(marker: Path) -> bool:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
