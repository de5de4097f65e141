"""Medians, percentiles and ratios: what is quoted must be what was measured."""

import pytest

from bench.figures import Figure, median_costs, percentile, ratios


@pytest.mark.parametrize(
    ("q", "expected"), [(0.01, 1.0), (0.5, 50.0), (0.99, 99.0), (0.995, 100.0), (1.0, 100.0)]
)
def test_a_percentile_is_a_value_that_occurred(q: float, expected: float) -> None:
    values = [float(n) for n in range(100, 0, -1)]

    assert percentile(values, q) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.01) == percentile([7.0], 0.99) == 7.0


def test_a_figure_shows_median_minimum_and_maximum_of_its_runs() -> None:
    figure = Figure(store="redis", name="drain", unit="jobs/s", runs=(30.0, 10.0, 20.0))

    assert figure.median == 20.0
    assert "20.00" in figure.lines()
    assert "min 10.00  max 30.00  n=3" in figure.lines()


def test_costs_are_medians_over_the_runs_that_tell_them() -> None:
    runs = [{"cpu": 1.0}, {"cpu": 9.0, "wal": 5.0}, {"cpu": 2.0}]

    assert median_costs(runs) == {"cpu": 2.0, "wal": 5.0}


def test_ratios_pair_the_rounds_and_leave_out_those_that_one_side_did_not_finish() -> None:
    assert ratios([10.0, None, 30.0, 40.0], [5.0, 5.0, None, 10.0]) == (2.0, 4.0)


def test_ratios_of_different_numbers_of_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])
