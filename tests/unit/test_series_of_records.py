"""Steps made of stored records."""

from datetime import timedelta

from forge_jobs.model.metrics import HOUR, MINUTE
from forge_jobs.storage.history.series import HOUR_US, MINUTE_US, Record, series_of


def record(times: int) -> Record:
    """Return a record of some runs."""
    return Record(
        {"succeeded": times}, {1: times}, {2: times}, {3: times}, (times, -1, times, 0, 9)
    )


def test_a_step_of_several_records_has_their_sums_and_leaves_them_alone() -> None:
    records = {(MINUTE_US, minute * MINUTE_US): record(minute + 1) for minute in range(3)}
    [step] = series_of(records, timedelta(minutes=5))
    assert step.counts == {"succeeded": 6}
    assert step.delay.counts == {1: 6}
    assert step.processing.counts == {2: 6}
    assert step.total.counts == {3: 6}
    assert step.depth is not None
    assert step.depth.due == 3
    assert list(records.values()) == [record(1), record(2), record(3)]


def test_a_record_that_is_alone_in_its_step_is_the_step() -> None:
    found = series_of({(MINUTE_US, 0): record(1), (MINUTE_US, MINUTE_US): record(2)}, MINUTE)
    assert [step.counts for step in found] == [{"succeeded": 1}, {"succeeded": 2}]


def test_an_hour_without_minutes_is_a_step_and_one_with_minutes_is_none() -> None:
    records = {
        (HOUR_US, 0): record(5),
        (HOUR_US, HOUR_US): record(7),
        (MINUTE_US, HOUR_US): record(1),
    }
    old, new = series_of(records, MINUTE)
    assert (old.length, old.counts) == (HOUR, {"succeeded": 5})
    assert (new.length, new.counts) == (MINUTE, {"succeeded": 1})


def test_a_gain_is_added_to_plain_numbers() -> None:
    stored = Record({"succeeded": 1}, {1: 1}, {}, {3: 4})
    stored.add(record(2))
    assert stored == Record({"succeeded": 3}, {1: 3}, {2: 2}, {3: 6}, (2, -1, 2, 0, 9))
