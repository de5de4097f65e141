"""Actions of tests at the stop points of the product."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forge_jobs import stop_points
from forge_jobs.errors import Unavailable
from forge_jobs.stop_points import Action


@contextmanager
def armed(name: str, action: Action) -> Iterator[None]:
    """Arm a point for the duration of a block."""
    stop_points.arm(name, action)
    try:
        yield
    finally:
        stop_points.disarm()


class FailingPoint:
    """Raises Unavailable at the first ``times`` visits: a reply that is lost."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.raised = 0

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            self.raised += 1
            raise Unavailable("the reply was lost on purpose")


def die_at(name: str, visit: int, marker: Path) -> None:
    """Arm a point to kill this process at the ``visit``-th visit.

    Of processes with the same marker only the first one dies.
    """
    visits = 0

    def kill() -> None:
        nonlocal visits
        visits += 1
        if visits < visit:
            return
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    stop_points.arm(name, kill)
