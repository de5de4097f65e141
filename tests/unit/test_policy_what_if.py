"""The outlook of a queue: against simulated queues, and at the edges."""

import random
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.model.metrics import Histogram
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.judgement.waiting import steady_wait
from forge_jobs.policy.judgement.what_if import Outlook, Verdict, in_words, what_if
from forge_jobs.policy.percentiles import Moments, moments
from tests.support.simulated_queues import (
    SHAPES,
    Shape,
    delays_at_rest,
    draw_case,
    growth_a_minute,
    histogram,
    seconds_to_clear,
)

CASES = 200
MINUTES = timedelta(minutes=15)


def load(
    waiting: int = 0,
    running: int = 8,
    max_workers: int = 8,
    *,
    arrived: int = 3_600,
    runs: tuple[float, ...] = (1.0,) * 3_000,
) -> Load:
    """A queue with four jobs a second of one second each, so that half of its workers are busy."""
    return Load(
        over=MINUTES,
        arrived=arrived,
        runs=histogram(runs),
        waiting=waiting,
        running=running,
        max_workers=max_workers,
    )


def is_near(foretold: float, true: float) -> bool:
    return abs(foretold - true) <= true / 3


@pytest.mark.daily("exponential")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_forecasts_are_within_a_third_and_nothing_clears_that_grows(shape: Shape) -> None:
    rng = random.Random(f"what if {shape.name}")
    near, in_span, called = [], [], 0
    for _ in range(CASES):
        case = draw_case(shape, rng)
        outlook = what_if(case.load)
        if outlook.verdict is Verdict.TOO_CLOSE:
            assert 0.5 < case.use < 1.7
            continue
        called += 1
        assert (outlook.verdict is Verdict.GROWS) == (case.use > 1), (case, outlook)
        if outlook.grows_by is not None:
            near.append(is_near(outlook.grows_by, growth_a_minute(case, rng)))
            continue
        true = seconds_to_clear(case, rng)
        assert outlook.clears_in is not None
        assert outlook.earliest is not None
        assert outlook.latest is not None
        near.append(is_near(outlook.clears_in.total_seconds(), true))
        in_span.append(outlook.earliest.total_seconds() <= true <= outlook.latest.total_seconds())

    assert called >= 0.6 * CASES
    assert sum(near) >= 0.9 * len(near)
    assert sum(in_span) >= 0.85 * len(in_span)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_delay_at_a_steady_load_is_within_a_third(shape: Shape) -> None:
    """Within a half with a long tail, of which two moments do not say all."""
    most = 0.5 if shape.scv > 1 else 1 / 3
    rng = random.Random(f"delay {shape.name}")
    for workers, use in ((1, 0.5), (1, 0.8), (4, 0.7), (4, 0.85), (20, 0.8)):
        case = draw_case(shape, rng)._replace(workers=workers, mean=1.0, rate=use * workers)
        delays = sorted(delays_at_rest(case, rng, 60_000))
        wait = steady_wait(case.rate, Moments(1_000, 1.0, shape.scv), workers)
        assert wait is not None
        assert wait.mean == pytest.approx(sum(delays) / len(delays), rel=most, abs=0.05)
        high = delays[int(0.95 * len(delays))]
        assert wait.quantile(0.95) == pytest.approx(high, rel=most, abs=most)
        share = sum(delay <= 2.0 for delay in delays) / len(delays)
        assert wait.share_within(2.0) == pytest.approx(share, abs=0.1)


def test_one_worker_waits_as_pollaczek_and_khinchine_say() -> None:
    # M/D/1 at 80 %: rho / (2 (1 - rho)) = 2 run times. M/M/1: twice that, and rho waits.
    constant = steady_wait(0.8, Moments(9, 1.0, 0.0), 1)
    exponential = steady_wait(0.8, Moments(9, 1.0, 1.0), 1)

    assert constant is not None
    assert constant.mean == pytest.approx(2.0)
    assert exponential is not None
    assert exponential.mean == pytest.approx(4.0)
    assert exponential.probability == pytest.approx(0.8)
    assert exponential.quantile(0.95) == pytest.approx(13.86, abs=0.01)


def test_a_table_of_erlang_c() -> None:
    # L. Kleinrock, Queueing Systems I, 1975: c = 5, load 4 erlang waits with 0.554.
    wait = steady_wait(4.0, Moments(9, 1.0, 1.0), 5)

    assert wait is not None
    assert wait.probability == pytest.approx(0.554, abs=0.001)
    assert steady_wait(5.0, Moments(9, 1.0, 1.0), 5) is None


def test_more_workers_clear_what_grew() -> None:
    now = load(waiting=4_000, arrived=9_000)

    grows, clears = what_if(now), what_if(now, max_workers=20)

    assert grows.verdict is Verdict.GROWS
    assert grows.grows_by == pytest.approx(120, rel=0.2)
    assert grows.text.startswith("never clears: grows by ")
    assert clears.verdict is Verdict.CLEARS
    assert clears.clears_in is not None
    # 3,988 jobs at 20 / 0.958 s less the ten that arrive in a second.
    assert clears.clears_in.total_seconds() == pytest.approx(367, rel=0.01)
    assert "clears in about" in clears.text
    assert "between" in clears.text
    assert "then 95 of 100 jobs start within" in clears.text
    assert clears.rests_on == "the last 15 min: 600 due a minute, 0.958 s a run, 3000 runs"


def test_arrivals_are_a_factor() -> None:
    now = load(waiting=100)

    assert what_if(now, arrivals=0.5).verdict is Verdict.CLEARS
    assert what_if(now, arrivals=2.0).verdict is Verdict.TOO_CLOSE
    assert what_if(now, arrivals=3.0).verdict is Verdict.GROWS


@pytest.mark.parametrize(
    ("arrivals", "verdict"),
    [
        (0.88, "clears"),
        (0.91, "too_close"),
        (1.0, "too_close"),
        (1.09, "too_close"),
        (1.13, "grows"),
    ],
)
def test_within_a_tenth_nothing_is_called(arrivals: float, verdict: str) -> None:
    many = load(waiting=100, arrived=10_000_000, max_workers=1_000, runs=(0.09,) * 1_000_000)
    balanced = many.rate * (moments(many.runs) or Moments(1, 1.0, 1.0)).mean / 1_000

    assert what_if(many, arrivals=arrivals / balanced).verdict.value == verdict


def test_few_measurements_widen_what_is_too_close() -> None:
    few = load(waiting=50, arrived=14, runs=(1.0, 9.0, 100.0, 400.0), max_workers=4)
    many = load(waiting=50, arrived=1_400, runs=(1.0, 9.0, 100.0, 400.0) * 100, max_workers=400)

    assert what_if(few, arrivals=0.5).verdict is Verdict.TOO_CLOSE
    assert what_if(many, arrivals=0.5).verdict is Verdict.CLEARS


def test_what_waits_for_a_free_worker_alone_clears_at_once() -> None:
    outlook = what_if(load(waiting=3, running=2))

    assert outlook.clears_in == timedelta(0)
    assert outlook.text.startswith("no backlog: 95 of 100 jobs start within")


def test_workers_that_were_taken_away_finish_first() -> None:
    lowered = what_if(load(waiting=0, running=8, max_workers=8), max_workers=6)

    assert lowered.clears_in is not None
    assert timedelta(0) < lowered.clears_in < timedelta(seconds=3)


def test_one_run_of_years_among_many_short_ones_is_no_error() -> None:
    idle = load(waiting=2, arrived=0, max_workers=1, running=0)
    odd = msgspec.structs.replace(idle, runs=Histogram({1: 10_000_000, 362: 1}))

    assert what_if(odd).verdict is Verdict.CLEARS


def test_without_workers_or_runs() -> None:
    nothing = load(arrived=0, runs=(), running=0)

    assert what_if(nothing).verdict is Verdict.CLEARS
    assert what_if(load(arrived=0, runs=(), waiting=9, running=0)).verdict is Verdict.UNKNOWN
    assert what_if(load(arrived=9, runs=(), running=0)).verdict is Verdict.UNKNOWN
    assert what_if(nothing, max_workers=0).verdict is Verdict.STANDS
    assert what_if(load(), max_workers=0).grows_by == pytest.approx(240)


@pytest.mark.parametrize(
    "wrong",
    [{"max_workers": -1}, {"max_workers": 100_001}, {"arrivals": -0.1}, {"arrivals": 1e999}],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        what_if(load(), **wrong)


@given(
    st.builds(
        Load,
        over=st.timedeltas(timedelta(seconds=1), timedelta(days=30)),
        arrived=st.integers(0, 10**7),
        runs=st.lists(st.floats(0, 1e6), max_size=30).map(histogram),
        waiting=st.integers(0, 10**7),
        running=st.integers(0, 1_000),
        max_workers=st.integers(0, 1_000),
    ),
    st.none() | st.integers(0, 1_000),
    st.floats(0, 100),
)
def test_every_load_has_an_outlook(now: Load, workers: int | None, arrivals: float) -> None:
    outlook = what_if(now, max_workers=workers, arrivals=arrivals)

    assert isinstance(outlook, Outlook)
    assert (outlook.verdict is Verdict.CLEARS) == (outlook.clears_in is not None)
    assert (outlook.verdict is Verdict.GROWS) == (outlook.grows_by is not None)
    if outlook.clears_in is not None:
        assert outlook.earliest is not None
        assert outlook.latest is not None
        assert timedelta(0) <= outlook.earliest <= outlook.clears_in <= outlook.latest
    assert outlook.grows_by is None or outlook.grows_by >= 0


@given(st.integers(0, 3_000), st.integers(5, 60))
def test_one_worker_more_never_makes_clearing_longer(waiting: int, workers: int) -> None:
    fewer, more = (what_if(load(waiting), max_workers=each) for each in (workers, workers + 1))

    assert fewer.clears_in is not None
    assert more.clears_in is not None
    assert more.clears_in <= fewer.clears_in


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.2, "0.2 s"),
        (59, "59 s"),
        (840, "14 min"),
        (5_400, "1.5 h"),
        (864_000, "10 d"),
    ],
)
def test_a_duration_for_people(seconds: float, text: str) -> None:
    assert in_words(timedelta(seconds=seconds)) == text
