"""Spread over a window: which moment of the window a job gets."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forge_jobs.errors import InvalidInput, RegistrationError
from forge_jobs.handlers.preparing import prepare, prepare_many
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.spreading import spread_over
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import NewJob, Unique
from forge_jobs.privacy.encryption import Encryption

handlers = HandlerRegistry()
HOUR = timedelta(hours=1)
AT = datetime(2030, 1, 1, tzinfo=UTC)


@handlers.job("wide", queue="q", spread=600)
def wide(number: int) -> None: ...


def seconds(job: NewJob) -> float:
    assert job.delay is not None
    return job.delay.total_seconds()


def many(count: int, spread: Any, **options: Any) -> Sequence[NewJob]:
    requests = (EnqueueRequest("k", {"n": n}, **options) for n in range(count))
    return prepare_many(spread_over(requests, spread))


class TestOne:
    def test_the_jobs_of_a_window_lie_all_over_the_window(self) -> None:
        found = [seconds(prepare(EnqueueRequest("k", spread=100))) for _ in range(2_000)]

        assert 0 <= min(found) < 1
        assert 99 < max(found) < 100
        tenths = [
            sum(tenth * 10 <= each < tenth * 10 + 10 for each in found) for tenth in range(10)
        ]
        assert min(tenths) > 120
        assert max(tenths) < 290

    def test_one_id_has_one_moment(self) -> None:
        request = EnqueueRequest("k", id=new_job_id(), spread=HOUR)

        assert prepare(request) == prepare(request)

    def test_a_repeat_with_another_window_is_the_same_request(self) -> None:
        request = EnqueueRequest("k", id=new_job_id())

        prints = {prepare(request.options(spread=each)).fingerprint for each in (None, 5, HOUR)}

        assert len(prints) == 1

    def test_the_part_comes_on_top_of_delay_and_run_at(self) -> None:
        request = EnqueueRequest("k", id=new_job_id())
        plain = prepare(request.options(spread=HOUR)).delay
        assert plain is not None

        assert (
            prepare(request.options(spread=HOUR, delay=60)).delay == timedelta(seconds=60) + plain
        )
        at = prepare(request.options(spread=HOUR, run_at=AT))
        assert (at.run_at, at.delay) == (AT + plain, None)

    def test_the_handlers_window_holds_unless_the_request_has_one_or_none(self) -> None:
        assert seconds(prepare(wide.request(1))) < 600
        assert seconds(prepare(EnqueueRequest("wide", {"number": 1}), handlers)) < 600
        assert prepare(wide.request(1).options(spread=None)).delay is None
        found = [seconds(prepare(wide.request(1).options(spread=HOUR))) for _ in range(100)]
        assert max(found) > 600

    def test_an_encrypted_request_is_spread_likewise(self) -> None:
        request = EnqueueRequest("k", id=new_job_id(), spread=HOUR)

        encrypted = prepare(request, encryption=Encryption([Encryption.new_key()]))

        assert encrypted.delay == prepare(request).delay


class TestMany:
    def test_each_job_has_a_step_of_its_own(self) -> None:
        jobs = many(100, 1_000)

        assert [int(seconds(job) // 10) for job in jobs] == list(range(100))
        assert len({seconds(job) % 10 for job in jobs}) > 90

    def test_the_moments_repeat_under_the_same_ids(self) -> None:
        ids = [new_job_id() for _ in range(20)]
        requests = [EnqueueRequest("k", id=each) for each in ids]

        first, second = (prepare_many(spread_over(requests, HOUR)) for _ in range(2))

        assert first == second

    def test_a_part_of_the_list_again_is_the_same_requests(self) -> None:
        requests = [EnqueueRequest("k", id=new_job_id()) for _ in range(20)]
        whole, part = (prepare_many(spread_over(some, HOUR)) for some in (requests, requests[5:]))

        assert [job.fingerprint for job in part] == [job.fingerprint for job in whole[5:]]

    def test_the_window_of_the_call_counts_and_delays_stay(self) -> None:
        requests = [wide.request(n).options(delay=n) for n in range(10)]

        jobs = prepare_many(spread_over(requests, 100))

        assert [int((seconds(job) - n) // 10) for n, job in enumerate(jobs)] == list(range(10))

    def test_without_a_window_each_request_has_its_own(self) -> None:
        jobs = prepare_many([wide.request(n) for n in range(50)])

        assert len({job.delay for job in jobs}) == 50
        assert max(map(seconds, jobs)) < 600

    def test_none_is_an_empty_list(self) -> None:
        assert many(0, HOUR) == ()


@pytest.mark.parametrize("window", [0, -1, "1h", True, float("inf"), timedelta(days=367)])
def test_a_wrong_window_is_refused_by_name(window: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^spread: "):
        prepare(EnqueueRequest("k", spread=window))
    with pytest.raises(InvalidInput, match=r"^spread: "):
        many(2, window)
    with pytest.raises(RegistrationError, match="spread"):
        HandlerRegistry().job("k", spread=window)


def test_a_debounced_key_says_itself_when_the_job_runs() -> None:
    request = EnqueueRequest("k", unique=Unique("a", "debounce", 5), spread=5)

    with pytest.raises(InvalidInput, match="spread: is given together with mode 'debounce'"):
        prepare(request)


def test_a_moment_past_the_end_of_time_is_refused() -> None:
    last = datetime.max.replace(tzinfo=UTC)

    with pytest.raises(InvalidInput, match="spread"):
        [prepare(EnqueueRequest("k", run_at=last, spread=HOUR)) for _ in range(5)]
