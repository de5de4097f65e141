"""When a waiting job starts: nine of ten simulated jobs start in the span that was given."""

import heapq
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from forge_jobs.model.queues import LinePlace
from forge_jobs.policy.judgement.forecast import forecast
from forge_jobs.policy.judgement.load import Load
from tests.support.simulated_queues import SHAPES, Shape, histogram

NOW = datetime(2026, 11, 23, 13, 58, tzinfo=UTC)
TRIALS = 200


def load(lengths: list[float], *, running: int, waiting: int = 0) -> Load:
    return Load(
        over=timedelta(minutes=15),
        arrived=len(lengths),
        runs=histogram(lengths),
        waiting=waiting,
        running=running,
        max_workers=running,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("slots", [1, 8])
@pytest.mark.parametrize("ahead", [0, 3, 40, 400])
def test_nine_of_ten_jobs_start_in_the_span(shape: Shape, slots: int, ahead: int) -> None:
    draw, random = shape.draw, Random(f"{shape.name} {slots} {ahead}")
    inside = 0
    for _ in range(TRIALS):
        measured = load([draw(random) for _ in range(300)], running=slots)
        told = forecast(LinePlace(ahead=ahead), measured, slots=slots, now=NOW)
        assert told is not None
        assert told.latest is not None
        # Long before, so that runs are under way at the moment of the question.
        begin = random.uniform(50, 60)
        ends = [draw(random) for _ in range(slots)]
        heapq.heapify(ends)
        left = ahead + 1
        while left:
            end = heapq.heappop(ends)
            left -= end >= begin
            heapq.heappush(ends, end + draw(random))
        inside += told.earliest <= NOW + timedelta(seconds=end - begin) <= told.latest
    assert inside >= 0.85 * TRIALS


def test_the_span_names_the_place_and_what_it_rests_on() -> None:
    told = forecast(LinePlace(ahead=12), load([2.0] * 100, running=4), slots=4, now=NOW)

    assert told is not None
    assert told.rests_on.startswith("12 due before, 4 at once, the last 15 min: ")
    assert told.text(NOW).startswith("starts in ")


def test_a_job_before_which_nothing_stands_starts_at_once_where_a_slot_is_free() -> None:
    told = forecast(LinePlace(ahead=0), load([2.0] * 100, running=3), slots=4, now=NOW)

    assert told is not None
    assert (told.earliest, told.latest) == (NOW, NOW)


def test_beyond_what_is_counted_no_latest_instant_is_given() -> None:
    place = LinePlace(ahead=50_000, is_more=True)
    told = forecast(place, load([2.0] * 100, running=4), slots=4, now=NOW)

    assert told is not None
    assert told.latest is None
    assert told.text(NOW).endswith("or later")
    assert told.rests_on.startswith("more than 50,000 due before")


@pytest.mark.parametrize(("lengths", "slots"), [([], 4), ([2.0], 0), ([0.0, 0.0], 4)])
def test_nothing_is_said_where_nothing_was_measured(lengths: list[float], slots: int) -> None:
    assert forecast(LinePlace(ahead=1), load(lengths, running=1), slots=slots, now=NOW) is None
