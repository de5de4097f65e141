"""Queues in simulated time, as what forecasts are compared with."""

import heapq
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import NamedTuple

from forge_jobs.model.metrics import Histogram
from forge_jobs.model.objectives import Objective
from forge_jobs.policy.judgement.desired_pods import desired_pods
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.percentiles import bucket_of

_SIGMA = math.sqrt(math.log(5))


class Shape(NamedTuple):
    """A distribution of run times with a mean of 1.

    :ivar scv: squared coefficient of variation
    :ivar rest: what is left of a run that is met at a random moment
    """

    name: str
    scv: float
    draw: Callable[[random.Random], float]
    rest: Callable[[random.Random], float]


SHAPES = (
    Shape("all alike", 0.0, lambda rng: 1.0, lambda rng: rng.random()),
    Shape("exponential", 1.0, lambda r: r.expovariate(1), lambda r: r.expovariate(1)),
    Shape(
        "long tail",
        4.0,
        lambda r: r.lognormvariate(-(_SIGMA**2) / 2, _SIGMA),
        # A random moment meets a run in proportion to its length, anywhere.
        lambda r: r.lognormvariate(_SIGMA**2 / 2, _SIGMA) * r.random(),
    ),
)


def histogram(samples: Iterable[float]) -> Histogram:
    return Histogram(Counter(map(bucket_of, samples)))


class Case(NamedTuple):
    """A queue at one moment: 15 minutes of measurements, and what is true."""

    shape: Shape
    mean: float
    rate: float
    workers: int
    load: Load

    @property
    def use(self) -> float:
        return self.rate * self.mean / self.workers


def draw_case(shape: Shape, rng: random.Random) -> Case:
    """A queue with a backlog, between a third busy and busy for two."""
    workers = round(math.exp(rng.uniform(0, math.log(40))))
    mean = math.exp(rng.uniform(math.log(0.05), math.log(5)))
    rate = rng.uniform(0.3, 1.8) * workers / mean
    over = max(900.0, 400 * mean / workers)
    arrived = max(round(rng.gauss(rate * over, math.sqrt(rate * over))), 1)
    ended = min(arrived, round(over * workers / mean), 3_000)
    load = Load(
        over=timedelta(seconds=over),
        arrived=arrived,
        runs=histogram(mean * shape.draw(rng) for _ in range(max(ended, 1))),
        waiting=round(math.exp(rng.uniform(math.log(400), math.log(2_000)))) + 20 * workers,
        running=rng.choice((0, workers // 2, workers)),
        max_workers=workers,
    )
    return Case(shape, mean, rate, workers, load)


def seconds_to_clear(case: Case, rng: random.Random) -> float:
    """When the last of those that wait starts, and no other has come to wait."""
    free = _first_ends(case, rng)
    for _ in range(case.load.waiting):
        start = free[0]
        heapq.heapreplace(free, start + case.mean * case.shape.draw(rng))
    arrival = 0.0
    while True:
        arrival += rng.expovariate(case.rate)
        if arrival > start:
            return start
        start = free[0]
        heapq.heapreplace(free, start + case.mean * case.shape.draw(rng))


def growth_a_minute(case: Case, rng: random.Random) -> float:
    """By how much the backlog grows over the time of 4,000 arrivals."""
    until = 4_000 / case.rate
    free = _first_ends(case, rng)
    started = 0
    while free[0] <= until:
        heapq.heapreplace(free, free[0] + case.mean * case.shape.draw(rng))
        started += 1
    return (4_000 - started) / until * 60


def delays_at_rest(case: Case, rng: random.Random, jobs: int) -> list[float]:
    """The delays of jobs after a thousand have warmed the queue up."""
    free = [0.0] * case.workers
    arrival, delays = 0.0, []
    for _ in range(jobs + 1_000):
        arrival += rng.expovariate(case.rate)
        start = max(arrival, free[0])
        delays.append(start - arrival)
        heapq.heapreplace(free, start + case.mean * case.shape.draw(rng))
    return delays[1_000:]


def _first_ends(case: Case, rng: random.Random) -> list[float]:
    busy = [case.mean * case.shape.rest(rng) for _ in range(case.load.running)]
    free = busy + [0.0] * (case.workers - len(busy))
    heapq.heapify(free)
    return free


class Scaled(NamedTuple):
    """The deeds of an autoscaler on a queue.

    :ivar pods: as asked for, at each look
    :ivar delays: (arrival, delay) of each job
    """

    pods: list[int]
    delays: list[tuple[float, float]]


class _Fleet:
    """Pods of one queue, whose number follows ``desired_pods``."""

    def __init__(self, objective: Objective, slots_per_pod: int) -> None:
        self._objective, self._slots_per_pod = objective, slots_per_pod
        self._starting: list[tuple[float, int]] = []
        self._past: list[tuple[float, float]] = []
        self._depths: list[tuple[float, int]] = []
        self._capacity = self.asked = 1
        self.ends: list[float] = []

    @property
    def has_room(self) -> bool:
        return len(self.ends) < self._capacity * self._slots_per_pod

    def events(self) -> list[float]:
        """When the next job ends, and when the next pods have started."""
        return self.ends[:1] + [at for at, _ in self._starting[:1]]

    def pass_to(self, now: float) -> None:
        while self.ends and self.ends[0] <= now:
            heapq.heappop(self.ends)
        while self._starting and self._starting[0][0] <= now:
            self._capacity = min(self._starting.pop(0)[1], self.asked)

    def run(self, now: float, length: float) -> None:
        heapq.heappush(self.ends, now + length)
        self._past.append((now + length, length))

    def look(self, now: float, arrived: int, waiting: int) -> None:
        """Ask for pods by the measurements of the window."""
        self._past = [each for each in self._past if each[0] > now - _WINDOW]
        self._depths = [each for each in self._depths if each[0] > now - _WINDOW]
        self._depths.append((now, waiting))
        load = Load(
            over=timedelta(seconds=min(max(now, 60.0), _WINDOW)),
            arrived=arrived,
            runs=histogram(length for _, length in self._past),
            waiting=waiting,
            running=len(self.ends),
            max_workers=10_000,
            peak=max(depth for _, depth in self._depths),
        )
        wish = desired_pods(
            load, self._objective, pods=self.asked, slots_per_pod=self._slots_per_pod
        ).pods
        if wish > self.asked:
            self._starting.append((now + _STARTS_IN, wish))
        self.asked = wish
        self._capacity = min(self._capacity, wish)


_WINDOW, _STARTS_IN, _LOOK_EVERY = 900.0, 30.0, 15.0


def autoscaled(
    arrivals: Iterable[float],
    draw: Callable[[], float],
    objective: Objective,
    *,
    slots_per_pod: int,
    until: float,
) -> Scaled:
    """A queue whose pods follow ``desired_pods``. New ones begin late, superfluous ones drain."""
    coming = list(arrivals)
    fleet = _Fleet(objective, slots_per_pod)
    scaled = Scaled([], [])
    now = look = 0.0
    started = taken = 0
    while now < until:
        now = min([look, *coming[taken : taken + 1], *fleet.events()])
        taken = bisect_right(coming, now)
        fleet.pass_to(now)
        if now >= look:
            look += _LOOK_EVERY
            fleet.look(now, taken - bisect_right(coming, now - _WINDOW), taken - started)
            scaled.pods.append(fleet.asked)
        while started < taken and fleet.has_room:
            scaled.delays.append((coming[started], now - coming[started]))
            fleet.run(now, draw())
            started += 1
    return scaled
