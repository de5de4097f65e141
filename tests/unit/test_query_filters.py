"""The filter of the stores that a query means by now, and the query of a filter."""

from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.model.answering.filters import as_filter, is_relative, query_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queries.writing import format_query
from tests.unit.test_queries import INSTANTS, NAMES, QUEUES

NOW = datetime(2026, 11, 23, 14, 31, 2, tzinfo=UTC)
AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
T = TypeVar("T")
JOB = JobId("01J00000000000000000000000")


def _some(values: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(values, max_size=4, unique=True).map(tuple)


FILTERS = st.builds(
    JobFilter,
    ids=st.none() | st.lists(st.builds(new_job_id), min_size=1, max_size=4, unique=True).map(tuple),
    queues=_some(QUEUES),
    kinds=_some(NAMES),
    statuses=_some(st.sampled_from(JobStatus)),
    causes=_some(st.sampled_from(Cause)),
    tag=st.none() | NAMES,
    unique_key=st.none() | NAMES,
    schedule=st.none() | NAMES,
    enqueued_before=st.none() | INSTANTS,
    enqueued_after=st.none() | INSTANTS,
    terms=st.sampled_from(
        [
            "",
            "-queue:a -tag:b",
            'pod:web attempt:>2 error:"x y"',
            "finished:<2026-11-20T10:00Z running:>1m payload.a:1",
        ]
    ).map(lambda text: parse_query(text).terms),
)


@given(FILTERS)
def test_every_filter_is_a_text_that_means_the_same_filter(which: JobFilter) -> None:
    text = format_query(query_of(which))

    assert as_filter(parse_query(text), NOW) == which


@pytest.mark.parametrize(
    ("text", "which"),
    [
        ("", JobFilter()),
        (
            f"queue:gh,slack kind:a tag:t key:k schedule:nightly id:{JOB}",
            JobFilter(
                ids=(JOB,),
                queues=("gh", "slack"),
                kinds=("a",),
                tag="t",
                unique_key="k",
                schedule="nightly",
            ),
        ),
        ("status:dead,retrying", JobFilter(statuses=(JobStatus.DEAD, JobStatus.FAILED))),
        ("status:dead,done -status:done", JobFilter(statuses=(JobStatus.DEAD,))),
        ("-status:done", JobFilter(statuses=tuple(s for s in JobStatus if s != "done"))),
        ("-cause:succeeded", JobFilter(causes=tuple(c for c in Cause if c != "succeeded"))),
        ("status:dead -status:dead", JobFilter(ids=())),
        ("enqueued:<1h", JobFilter(enqueued_after=NOW - HOUR + TICK)),
        ("enqueued:<=1h", JobFilter(enqueued_after=NOW - HOUR)),
        ("enqueued:>1h", JobFilter(enqueued_before=NOW - HOUR)),
        ("enqueued:>=1h", JobFilter(enqueued_before=NOW - HOUR + TICK)),
        ("enqueued:>2026-11-20T10:00Z", JobFilter(enqueued_after=AT + TICK)),
        ("enqueued:>=2026-11-20T10:00Z", JobFilter(enqueued_after=AT)),
        ("enqueued:<2026-11-20T10:00Z", JobFilter(enqueued_before=AT)),
        ("enqueued:<=2026-11-20T10:00Z", JobFilter(enqueued_before=AT + TICK)),
        ("enqueued:<=2h enqueued:<=1h", JobFilter(enqueued_after=NOW - HOUR)),
        ("enqueued:>2h enqueued:>1h", JobFilter(enqueued_before=NOW - 2 * HOUR)),
    ],
)
def test_a_query_means_a_filter(text: str, which: JobFilter) -> None:
    assert as_filter(parse_query(text), NOW) == which


@pytest.mark.parametrize(
    "text",
    [
        "pod:web-1",
        'error:"x"',
        "attempt:>2",
        "crashes:0",
        "running:>1m",
        "finished:>=2026-11-20T10:00Z",
        "due:<2026-11-20T10:00Z",
        "payload.a:1",
        "group:7f",
        "-queue:gh",
        "-kind:a",
        "-tag:a",
        "-key:a",
        "tag:a,b",
        "schedule:a,b",
    ],
)
def test_what_is_no_part_of_a_filter_is_one_of_its_terms(text: str) -> None:
    which = as_filter(parse_query(f"status:dead tag:t {text}"), NOW)

    assert which == JobFilter(statuses="dead", tag="t", terms=parse_query(text).terms)  # type: ignore[arg-type]


def test_terms_have_instants_for_ages() -> None:
    which = as_filter(parse_query("finished:<1h due:>=-1h running:>1m"), NOW)

    settled = "finished:>2026-11-23T13:31:02Z due:<=2026-11-23T15:31:02Z running:>1m"
    assert which.terms == parse_query(settled).terms


@given(FILTERS)
def test_a_filter_is_the_same_after_json(which: JobFilter) -> None:
    assert msgspec.json.decode(msgspec.json.encode(which), type=JobFilter) == which


def test_of_two_tags_one_is_a_term() -> None:
    assert as_filter(parse_query("tag:a tag:b"), NOW) == JobFilter(
        tag="a", terms=parse_query("tag:b").terms
    )


def test_a_filter_that_means_no_job_at_all_is_no_text() -> None:
    with pytest.raises(InvalidInput, match="no job is meant"):
        query_of(JobFilter(ids=()))


def test_a_duration_means_other_jobs_as_time_passes() -> None:
    assert is_relative(parse_query("queue:a enqueued:<1h"))
    assert not is_relative(parse_query("queue:a enqueued:<2026-11-20T10:00Z attempt:>2"))


def test_a_time_that_no_calendar_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="enqueued: is a time that no calendar has"):
        as_filter(parse_query("enqueued:>36500d"), datetime(50, 1, 1, tzinfo=UTC))
