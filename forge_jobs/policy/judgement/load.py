"""The measured load of one queue: what forecasts rest on."""

import math
from datetime import timedelta

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.metrics import Histogram
from forge_jobs.policy.explanations import count
from forge_jobs.policy.percentiles import Moments, moments


class Load(Struct, frozen=True, kw_only=True):
    """Measurements of one queue.

    :param over: how long was measured, up to now
    :param arrived: runs that fell due meanwhile: first runs and retries
    :param runs: how long the runs took that ended meanwhile
    :param waiting: jobs that are due and wait now
    :param running: jobs that run now
    :param max_workers: how many may run at once
    :param peak: the most that waited at any look meanwhile. 0 when that is not known
    :raises InvalidInput: ``over`` is not above zero, or a number is below zero
    """

    over: timedelta
    arrived: int
    runs: Histogram
    waiting: int
    running: int
    max_workers: int
    peak: int = 0

    def __post_init__(self) -> None:
        if self.over <= timedelta(0):
            raise InvalidInput("over", f"is {self.over}", "give a duration above zero")
        for name in ("arrived", "waiting", "running", "max_workers", "peak"):
            if getattr(self, name) < 0:
                raise InvalidInput(name, f"is {getattr(self, name)}", "give zero or more")

    @property
    def rate(self) -> float:
        """Runs that fell due in a second."""
        return self.arrived / self.over.total_seconds()

    @property
    def moments(self) -> Moments | None:
        """The moments of the run times. None when nothing ran."""
        return moments(self.runs)

    def error_of_use(self, runs: Moments) -> float:
        """The relative standard error of rate times run time, as the load of the workers.

        The number of arrivals is taken as Poisson's, so its relative variance is one over the
        number. That of a mean of n samples is scv / n.
        """
        return math.sqrt(1 / max(self.arrived, 1) + runs.scv / runs.samples)

    def rests_on(self) -> str:
        """Say what a forecast rests on, for people."""
        minutes = self.over.total_seconds() / 60
        runs = self.moments
        length = (
            f"{runs.mean:.3g} s a run, {count(runs.samples, 'run')}" if runs else "no run ended"
        )
        return f"the last {minutes:.3g} min: {self.rate * 60:.3g} due a minute, {length}"
