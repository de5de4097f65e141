"""The life of a job: states without gaps, also where events were lost."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.ids import HostId, JobId, WorkerId
from forge_jobs.model.jobs import Cause, ErrorRecord, Job, JobStatus
from forge_jobs.policy.timelines import Span, spans_of, stage_at

BEGIN = datetime(2026, 11, 23, 14, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def a_job(**fields: Any) -> Job:
    plain: dict[str, Any] = {
        "id": JobId("01K"), "queue": "gh", "kind": "sync", "payload": "{}",
        "status": JobStatus.PENDING, "cause": Cause.ENQUEUED, "priority": 0, "attempt": 0,
        "max_attempts": 5, "token": 1, "crashes": 0, "snoozes": 0, "enqueued_at": BEGIN,
        "due_at": BEGIN, "claimed_at": None, "started_at": None, "heartbeat_at": None,
        "finished_at": None, "expires_at": None, "timeout": None, "unique_key": None, "hold": None,
        "host_id": HostId(""), "worker_id": WorkerId(""), "cancel_requested": False, "tags": (),
        "metadata": {}, "trace": "", "schedule": "", "keep_result": True, "result": None,
        "errors": (), "waits_for": (),
    }  # fmt: skip
    return Job(**(plain | fields))


def event(seconds: float, kind: EventKind, detail: str = "", host: str = "p1") -> TimelineEvent:
    return TimelineEvent(at=at(seconds), kind=kind, job_id="01K", host_id=host, detail=detail)


def failure(
    seconds: float, attempt: int, ran_for: float | None = None, cause: Cause = Cause.FAILED
) -> ErrorRecord:
    return ErrorRecord(
        attempt=attempt, cause=cause, type="E", message="m", host_id="p1", at=at(seconds),
        ran_for=None if ran_for is None else timedelta(seconds=ran_for),
    )  # fmt: skip


def told(spans: tuple[Span, ...]) -> list[tuple[Any, ...]]:
    return [
        (
            each.stage,
            (each.at - BEGIN).total_seconds(),
            None if each.until is None else (each.until - BEGIN).total_seconds(),
            each.attempt,
        )
        for each in spans
    ]


STARTED, RETRIED, FINISHED = EventKind.STARTED, EventKind.RETRIED, EventKind.FINISHED
ENDED_DEAD: dict[str, Any] = {
    "status": JobStatus.DEAD, "cause": Cause.FAILED, "attempt": 2, "finished_at": at(40),
    "started_at": at(30), "host_id": HostId("p1"),
    "errors": (failure(10, 1, 5), failure(40, 2, 10)),
}  # fmt: skip


@pytest.mark.parametrize(
    "events",
    [
        (
            event(5.001, STARTED),
            event(10.01, RETRIED, "failed; due again in 20s"),
            event(30.002, STARTED),
            event(40.01, FINISHED, "failed"),
        ),
        (event(5.001, STARTED), event(40.01, FINISHED, "failed")),
        (),
    ],
)
def test_two_attempts_and_the_end_with_and_without_events(
    events: tuple[TimelineEvent, ...],
) -> None:
    assert told(spans_of(a_job(**ENDED_DEAD), events)) == [
        ("waiting", 0, 5, 0),
        ("running", 5, 10, 1),
        ("retrying", 10, 30, 0),
        ("running", 30, 40, 2),
        ("dead", 40, None, 0),
    ]


def test_attempts_that_end_within_a_moment_stay_apart() -> None:
    errors = tuple(failure(1 + number, number, 0.5) for number in (1, 2, 3))
    spans = spans_of(a_job(status=JobStatus.FAILED, attempt=3, errors=errors, due_at=at(60)), ())
    assert [each for each in told(spans) if each[0] == "running"] == [
        ("running", 1.5, 2, 1),
        ("running", 2.5, 3, 2),
        ("running", 3.5, 4, 3),
    ]
    assert told(spans)[-1] == ("retrying", 4, None, 0)


def test_a_record_of_an_earlier_release_says_when_the_attempt_ended() -> None:
    job = a_job(status=JobStatus.FAILED, attempt=1, errors=(failure(10, 1),), due_at=at(60))
    assert told(spans_of(job, ())) == [
        ("waiting", 0, 10, 0),
        ("running", 10, 10, 1),
        ("retrying", 10, None, 0),
    ]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (a_job(status=JobStatus.BLOCKED), [("blocked", 0, None, 0)]),
        (a_job(), [("waiting", 0, None, 0)]),
        (a_job(due_at=at(60)), [("scheduled", 0, 60, 0), ("waiting", 60, None, 0)]),
        (
            a_job(cause=Cause.PARENTS_SETTLED, due_at=at(60)),
            [("blocked", 0, 60, 0), ("waiting", 60, None, 0)],
        ),
        (
            a_job(status=JobStatus.CANCELLED, finished_at=at(9), due_at=at(60)),
            [("waiting", 0, 9, 0), ("cancelled", 9, None, 0)],
        ),
        (
            a_job(status=JobStatus.IN_PROGRESS, attempt=1, started_at=at(4)),
            [("waiting", 0, 4, 0), ("running", 4, None, 1)],
        ),
        (
            a_job(status=JobStatus.DONE, attempt=1, started_at=at(4), finished_at=at(9)),
            [("waiting", 0, 4, 0), ("running", 4, 9, 1), ("done", 9, None, 0)],
        ),
    ],
)
def test_lives_that_the_record_alone_tells(job: Job, expected: list[Any]) -> None:
    assert told(spans_of(job, ())) == expected


def test_a_hand_back_waits_and_is_no_retry() -> None:
    events = (event(4, STARTED), event(9, FINISHED, "snoozed"), event(20, STARTED, host="p2"))
    job = a_job(status=JobStatus.IN_PROGRESS, attempt=1, started_at=at(20), host_id=HostId("p2"))
    spans = spans_of(job, events)
    assert told(spans) == [
        ("waiting", 0, 4, 0),
        ("running", 4, 9, 0),
        ("waiting", 9, 20, 0),
        ("running", 20, None, 1),
    ]
    assert [(each.host_id, each.cause) for each in spans if each.stage == "running"] == [
        ("p1", "snoozed"),
        ("p2", ""),
    ]


def test_a_requeue_ends_the_death() -> None:
    events = (
        event(5, STARTED),
        event(10, FINISHED, "failed"),
        event(100, EventKind.REQUEUED, host=""),
    )
    job = a_job(cause=Cause.REQUEUED, due_at=at(100), errors=(failure(10, 1, 5),))
    assert told(spans_of(job, events)) == [
        ("waiting", 0, 5, 0),
        ("running", 5, 10, 1),
        ("dead", 10, 100, 0),
        ("waiting", 100, None, 0),
    ]


def test_asked_for_an_instant_the_state_then_is_told() -> None:
    spans = spans_of(a_job(**ENDED_DEAD), ())
    found = {seconds: stage_at(spans, at(seconds)) for seconds in (-1, 0, 4.9, 5, 20, 39, 40, 900)}
    assert {seconds: span and span.stage for seconds, span in found.items()} == {
        -1: None, 0: "waiting", 4.9: "waiting", 5: "running", 20: "retrying", 39: "running",
        40: "dead", 900: "dead",
    }  # fmt: skip


_moments = st.integers(-50, 500)
_events = st.lists(
    st.builds(
        event, _moments, st.sampled_from(list(EventKind)), st.sampled_from(["", "failed", "x"])
    ),
    max_size=12,
)
_errors = st.lists(
    st.builds(failure, _moments, st.integers(1, 9), st.sampled_from([None, 0, 3, 1000])), max_size=5
)


@given(
    events=_events,
    errors=_errors,
    status=st.sampled_from(list(JobStatus)),
    cause=st.sampled_from(list(Cause)),
    moments=st.tuples(*[st.one_of(st.none(), _moments.map(at))] * 3),
    due=_moments,
)
def test_whatever_is_known_the_states_follow_without_gaps(
    events: list[TimelineEvent],
    errors: list[ErrorRecord],
    status: JobStatus,
    cause: Cause,
    moments: tuple[datetime | None, ...],
    due: int,
) -> None:
    job = structs.replace(
        a_job(status=status, cause=cause, errors=tuple(errors), due_at=at(due)),
        claimed_at=moments[0],
        started_at=moments[1],
        finished_at=moments[2],
    )
    spans = spans_of(job, events)
    assert spans
    assert spans[0].at >= BEGIN - timedelta(seconds=1100)
    for one, following in pairwise(spans):
        assert one.until is not None
        assert one.at <= one.until == following.at
