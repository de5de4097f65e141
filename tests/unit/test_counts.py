"""A number of jobs, as a text and as a condition."""

import pytest

from forge_jobs.model.filters import Count
from forge_jobs.model.ids import JobId


@pytest.mark.parametrize(
    "count",
    [
        Count(1),
        Count(5, is_more=True),
        Count(0, looked_back_to=JobId("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
        Count(0, silent=("mail",)),
    ],
)
def test_a_count_is_true_where_a_job_matches_or_may(count: Count) -> None:
    assert count


def test_a_count_is_false_where_no_job_matches() -> None:
    assert not Count(0)
