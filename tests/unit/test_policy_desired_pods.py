"""How many pods a queue wants: simulated fleets, and the rules one by one."""

import random
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.model.objectives import Objective
from forge_jobs.policy.judgement.desired_pods import DesiredPods, desired_pods
from forge_jobs.policy.judgement.load import Load
from tests.support.simulated_queues import SHAPES, Shape, autoscaled, histogram

SECOND = timedelta(seconds=1)
HOUR = 3_600.0
OBJECTIVE = Objective(0.95, 60 * SECOND)


def load(
    *,
    arrived: int = 3_600,
    waiting: int = 0,
    running: int = 4,
    max_workers: int = 1_000,
    runs: tuple[float, ...] = (1.0, 3.0) * 1_000,
) -> Load:
    """Four jobs a second of two seconds each: eight workers are kept busy."""
    return Load(
        over=900 * SECOND,
        arrived=arrived,
        runs=histogram(runs),
        waiting=waiting,
        running=running,
        max_workers=max_workers,
    )


def want(
    now: Load, pods: int = 1, slots_per_pod: int = 2, objective: Objective = OBJECTIVE
) -> DesiredPods:
    return desired_pods(now, objective, pods=pods, slots_per_pod=slots_per_pod)


def arrivals(rng: random.Random, rate: float, *, start: float = 0.0, end: float) -> Iterator[float]:
    at = start + rng.expovariate(rate)
    while at < end:
        yield at
        at += rng.expovariate(rate)


@pytest.mark.daily("exponential")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize(
    ("rate", "mean", "slots"),
    [
        (2.0, 4.0, 1),
        (0.5, 10.0, 2),
        pytest.param(8.0, 1.0, 4, marks=pytest.mark.long),
    ],
)
def test_at_a_steady_load_pods_do_not_flap_and_the_objective_holds(
    shape: Shape, rate: float, mean: float, slots: int
) -> None:
    rng = random.Random(f"steady {shape.name} {rate}")
    until = 6 * HOUR

    scaled = autoscaled(
        arrivals(rng, rate, end=until),
        lambda: mean * shape.draw(rng),
        OBJECTIVE,
        slots_per_pod=slots,
        until=until,
    )

    settled = scaled.pods[len(scaled.pods) // 6 :]
    changes = [at * 15 for at, (one, two) in enumerate(pairwise(settled)) if one != two]
    assert len(changes) <= 2 * 5, changes
    falls = [at * 15 for at, (one, two) in enumerate(pairwise(settled)) if one > two]
    assert all(fall - max(at for at in [-HOUR, *changes] if at < fall) > 840 for fall in falls)
    delays = [delay for at, delay in scaled.delays if at > HOUR / 2]
    in_time = sum(delay <= OBJECTIVE.within.total_seconds() for delay in delays)
    assert in_time / len(delays) >= OBJECTIVE.share
    busy = rate * mean / slots
    assert max(settled) <= 2 * busy + 2


@pytest.mark.daily("exponential")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_in_a_burst_the_objective_holds(shape: Shape) -> None:
    """Four times the usual load for 20 minutes, in two hours."""
    rng = random.Random(f"burst {shape.name}")
    objective = Objective(0.95, 120 * SECOND)
    usual = arrivals(rng, 2.0, end=2 * HOUR)
    burst = arrivals(rng, 6.0, start=HOUR, end=HOUR + 1_200)

    scaled = autoscaled(
        sorted([*usual, *burst]),
        lambda: 3 * shape.draw(rng),
        objective,
        slots_per_pod=2,
        until=2 * HOUR,
    )

    delays = [delay for at, delay in scaled.delays if at > 600]
    in_time = sum(delay <= objective.within.total_seconds() for delay in delays)
    assert in_time / len(delays) >= objective.share
    before, during, after = (
        scaled.pods[round(at / 15)] for at in (HOUR - 15, HOUR + 900, 2 * HOUR - 60)
    )
    assert during >= 2 * before
    assert after <= during - before


def test_more_are_wanted_at_once_and_fewer_only_beyond_the_dead_band() -> None:
    now = load()
    fewest = want(now, pods=0).pods
    most = want(now, pods=100).pods

    assert fewest == 5
    assert most > fewest
    assert [want(now, pods=pods).pods for pods in range(fewest, most + 1)] == [
        *range(fewest, most + 1)
    ]


def test_what_waited_a_while_ago_keeps_pods_and_wants_none() -> None:
    calm, shaken = load(), msgspec.structs.replace(load(), peak=600)

    assert want(shaken, pods=0).pods == want(calm, pods=0).pods
    assert want(shaken, pods=20).pods == 20
    assert want(calm, pods=20).pods < 20


def test_what_waits_is_to_start_within_half_the_objective() -> None:
    # 600 jobs of two seconds within 30 s are 40 workers, and eight are busy with what arrives.
    assert want(load(waiting=600)).workers == pytest.approx(48, abs=2)


def test_no_pod_helps_before_it_has_started() -> None:
    soon = Objective(0.95, SECOND)

    late = desired_pods(load(waiting=600), soon, pods=1, slots_per_pod=2, starts_in=120 * SECOND)

    assert late.workers == pytest.approx(18, abs=2)


def test_a_tighter_objective_wants_more() -> None:
    loose, tight = Objective(0.5, 60 * SECOND), Objective(0.9999, timedelta(milliseconds=50))

    assert want(load(), objective=tight).workers > want(load(), objective=loose).workers


def test_no_worker_is_kept_busier_than_85_percent() -> None:
    assert want(load(arrived=36_000), objective=Objective(0.01, HOUR * SECOND)).workers >= 79 / 0.85


def test_max_workers_and_highest_hold_back() -> None:
    capped = want(load(max_workers=6))
    bounded = desired_pods(load(), OBJECTIVE, pods=1, slots_per_pod=2, highest=3)

    assert (capped.pods, capped.bound) == (3, "max_workers")
    assert (bounded.pods, bounded.bound) == (3, "highest")
    assert "held back by highest" in bounded.text
    assert "3 pods for" in bounded.text
    assert "95% within 1m" in bounded.text


def test_a_queue_without_work_keeps_the_lowest() -> None:
    idle = load(arrived=0, running=0, runs=())

    assert want(idle, pods=0).pods == 1
    assert desired_pods(idle, OBJECTIVE, pods=3, slots_per_pod=2, lowest=0).pods == 0


def test_work_of_unknown_length_keeps_the_pods_and_wants_one() -> None:
    unknown = load(arrived=5, waiting=5, running=0, runs=())

    assert want(unknown, pods=0).pods == 1
    assert want(unknown, pods=7).pods == 7


def test_a_last_job_keeps_a_pod() -> None:
    last = load(arrived=0, waiting=0, running=1)

    assert desired_pods(last, OBJECTIVE, pods=1, slots_per_pod=2, lowest=0).pods == 1


@pytest.mark.parametrize(
    "wrong", [{"slots_per_pod": 0}, {"pods": -1}, {"lowest": -1}, {"lowest": 4, "highest": 3}]
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    numbers = {"pods": 1, "slots_per_pod": 2} | wrong

    with pytest.raises(InvalidInput, match="pods"):
        desired_pods(load(), OBJECTIVE, **numbers)  # type: ignore[arg-type]


@given(
    st.builds(
        Load,
        over=st.timedeltas(SECOND, timedelta(days=1)),
        arrived=st.integers(0, 10**6),
        runs=st.lists(st.floats(0, 1e5), max_size=20).map(histogram),
        waiting=st.integers(0, 10**6),
        running=st.integers(0, 1_000),
        max_workers=st.integers(0, 10_000),
    ),
    st.builds(
        Objective, st.floats(0.01, 0.9999), st.timedeltas(timedelta(milliseconds=1), timedelta(1))
    ),
    st.integers(0, 100),
    st.integers(1, 50),
)
def test_the_answer_is_stable_and_within_its_bounds(
    now: Load, objective: Objective, pods: int, slots: int
) -> None:
    first = want(now, pods, slots, objective)
    again = want(now, first.pods, slots, objective)

    assert first.pods == again.pods
    assert 0 <= first.pods <= -(-now.max_workers // slots)
