"""The checker finds what must never be, in ledgers made by hand."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.policy.transitions import AttemptEnd, Rules, next_transition
from tests.chaos.checker import Verdict, judge
from tests.chaos.record import Outage, Record, Sending, ShardLoss, Stop, now_ns, wall_ms
from tests.support.factories import a_claimed_job
from tests.support.ledger import Ledger
from tests.support.surroundings import a_job

SECOND = 1_000_000_000
BEGIN = now_ns()
POD, OTHER = 11, 12
ID = JobId("01JOB")


class Story:
    """A job, sent and acknowledged, in the ledgers and the store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.record = Record(sendings={ID: Sending(BEGIN, BEGIN)})
        self.job: Job | None = a_job(
            id=ID, status=JobStatus.DONE, token=1, finished_at=self._wall(2)
        )
        self.known: set[int] = set()
        self.counters = {"enqueued": 1, "succeeded": 1, "claimed": 1}
        self.others: dict[str, dict[str, int]] = {}

    @staticmethod
    def _wall(seconds: float) -> datetime:
        at_ms = wall_ms(BEGIN + int(seconds * SECOND))
        return datetime.fromtimestamp(at_ms / 1_000, UTC)

    def note(
        self,
        event: str,
        at: float,
        *,
        token: int = 1,
        pod: int = POD,
        attempt: int = 1,
        job_id: str = ID,
    ) -> None:
        at_ns = BEGIN + int(at * SECOND)
        line = f"{event} {job_id} {attempt} {token} {pod} {at_ns} {int(wall_ms(at_ns) * 1e6)}\n"
        with self._path.open("a") as file:
            file.write(line)

    def finished(self, at: float, token: int) -> None:
        assert self.job is not None
        self.job = structs.replace(self.job, token=token, finished_at=self._wall(at))
        self.counters |= {"claimed": token, "crashed": token - 1}

    def verdict(self) -> Verdict:
        stored = {} if self.job is None else {ID: self.job}
        ledger = Ledger.read(self._path)
        return judge(self.record, ledger, stored, {"gh": self.counters, **self.others}, self.known)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "ledger")


def ran_once(story: Story) -> None:
    story.note("start", 1)
    story.note("end", 1.9)


def ran_again_after(story: Story, how: Callable[[Story], Any]) -> None:
    """POD has the job from 1 to 1.9, OTHER from 5 to 6. ``how`` says what was done to POD."""
    ran_once(story)
    story.note("start", 5, token=2, pod=OTHER)
    story.note("end", 6, token=2, pod=OTHER)
    story.finished(6.1, token=2)
    how(story)


def killed(story: Story) -> None:
    story.record.kills[POD] = BEGIN + 2 * SECOND


def frozen(story: Story) -> None:
    story.record.frozen.add(POD)


def fenced(story: Story) -> None:
    story.record.fenced.add(POD)


def stopped_too_soon(story: Story) -> None:
    story.record.stops[POD] = Stop(POD, BEGIN + SECOND, BEGIN + 2 * SECOND, 1)


def cut_off(story: Story) -> None:
    story.record.outages.append(
        Outage("blackhole", BEGIN + SECOND, (POD,), refused=False, to_ns=BEGIN + 4 * SECOND)
    )


def test_a_job_that_ran_once_is_fine(story: Story) -> None:
    ran_once(story)
    assert story.verdict().is_good


def test_a_job_that_never_ran_is_lost(story: Story) -> None:
    assert story.verdict().lost == [ID]


def test_a_job_that_ran_and_is_not_done_in_the_store_is_lost(story: Story) -> None:
    ran_once(story)
    story.job = a_job(id=ID, status=JobStatus.DEAD)
    assert story.verdict().lost == [ID]


def test_a_job_that_is_gone_from_the_store_is_lost(story: Story) -> None:
    ran_once(story)
    story.job = None
    assert story.verdict().lost == [ID]


def test_an_unacknowledged_job_may_be_missing(story: Story) -> None:
    story.record.sendings[ID].acked_ns = None
    story.job = None
    story.counters = {}
    assert story.verdict().is_good


def test_a_job_that_nobody_sent_is_unexpected(story: Story) -> None:
    ran_once(story)
    del story.record.sendings[ID]
    assert story.verdict().unexpected == [ID]


@pytest.mark.parametrize("how", [killed, frozen, fenced, stopped_too_soon, cut_off])
def test_a_fault_excuses_a_second_run(story: Story, how: Callable[[Story], None]) -> None:
    ran_again_after(story, how)
    assert story.verdict().is_good


def test_a_second_run_without_a_fault_is_found(story: Story) -> None:
    ran_again_after(story, lambda _: None)
    assert story.verdict().repeated == [ID]


@pytest.mark.parametrize(("how", "found"), [(frozen, []), (lambda _: None, [ID])])
def test_a_claim_of_before_that_starts_after_its_successor_is_that_of_a_frozen_process(
    story: Story, how: Callable[[Story], Any], found: list[str]
) -> None:
    story.note("start", 5, token=2, pod=OTHER)
    story.note("end", 6, token=2, pod=OTHER)
    story.note("start", 6.5)
    story.note("cut", 6.6)
    story.finished(6.1, token=2)
    how(story)
    assert story.verdict().repeated == found


def test_a_second_run_after_a_stop_in_good_order_is_found(story: Story) -> None:
    ran_again_after(story, stopped_too_soon)
    story.record.stops[POD].exit_code = 0
    assert story.verdict().repeated == [ID]


def test_a_run_after_the_store_took_the_success_is_found(story: Story) -> None:
    ran_again_after(story, killed)
    story.finished(1.95, token=1)
    assert story.verdict().rerun == [ID]


def a_shard_lost(story: Story, *queues: str) -> None:
    begin, end = BEGIN + SECOND, BEGIN + 4 * SECOND
    story.record.losses.append(ShardLoss("kill_shard", frozenset(queues), SECOND, begin, end, end))
    cut_off(story)


@pytest.mark.parametrize(("lost", "found"), [("here", []), ("there", [ID])])
def test_a_job_of_another_shard_that_was_stopped_and_ran_again_is_found(
    story: Story, lost: str, found: list[str]
) -> None:
    story.record.sendings[ID].queue = "here"
    story.note("start", 1)
    story.note("cut", 1.9)
    story.note("start", 5, token=2, pod=OTHER)
    story.note("end", 6, token=2, pod=OTHER)
    story.finished(6.1, token=2)
    a_shard_lost(story, lost)
    verdict = story.verdict()
    assert (verdict.stopped, verdict.again) == (found, found)


def test_a_second_run_long_before_a_shard_is_lost_is_of_no_matter(story: Story) -> None:
    ran_again_after(story, fenced)
    story.record.losses.append(
        ShardLoss("kill_shard", frozenset({"there"}), SECOND, BEGIN + 9 * SECOND)
    )
    assert story.verdict().is_good


def test_two_runs_at_once_are_found(story: Story) -> None:
    story.note("start", 1)
    story.note("start", 1.5, token=2, pod=OTHER)
    story.note("cut", 1.6)
    story.note("end", 1.9, token=2, pod=OTHER)
    story.finished(2, token=2)
    assert story.verdict().overlapping == [ID]


def test_two_runs_at_once_until_one_was_killed_are_found(story: Story) -> None:
    story.note("start", 1)
    story.note("start", 1.5, token=2, pod=OTHER)
    story.note("end", 3, token=2, pod=OTHER)
    story.finished(3.1, token=2)
    killed(story)
    assert story.verdict().overlapping == [ID]


def test_a_frozen_process_may_run_beside_its_successor(story: Story) -> None:
    story.note("start", 1)
    story.note("start", 5, token=2, pod=OTHER)
    story.note("end", 6, token=2, pod=OTHER)
    story.note("cut", 8)
    story.finished(6.1, token=2)
    frozen(story)
    assert story.verdict().is_good


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_attempt_burnt_by_a_stop_is_found(story: Story, attempt: int) -> None:
    story.note("start", 1)
    story.note("cut", 1.5)
    story.note("start", 1.6, token=2, pod=OTHER, attempt=attempt)
    story.note("end", 1.9, token=2, pod=OTHER, attempt=attempt)
    story.finished(2, token=2)
    story.record.stops[POD] = Stop(POD, BEGIN + SECOND, BEGIN + 2 * SECOND, 0)
    assert story.verdict().burnt == ([ID] if attempt == 2 else [])


@pytest.mark.parametrize(("killed_at", "found"), [(1.2, [ID]), (1.55, [])])
def test_an_attempt_may_go_to_a_claim_that_no_handler_saw(
    story: Story, killed_at: float, found: list[str]
) -> None:
    story.note("start", 1)
    story.note("cut", 1.5)
    story.note("start", 1.6, token=3, pod=OTHER, attempt=2)
    story.note("end", 1.9, token=3, pod=OTHER, attempt=2)
    story.finished(2, token=3)
    story.record.stops[POD] = Stop(POD, BEGIN + SECOND, BEGIN + 2 * SECOND, 0)
    story.record.kills[13] = BEGIN + int(killed_at * SECOND)
    assert story.verdict().burnt == found


@pytest.mark.parametrize(("code", "found"), [(0, []), (1, []), (-9, [POD]), (None, [POD])])
def test_a_stop_ends_with_a_code(story: Story, code: int | None, found: list[int]) -> None:
    ran_once(story)
    story.record.stops[POD] = Stop(POD, BEGIN + SECOND, BEGIN + 2 * SECOND, code)
    assert story.verdict().bad_stops == found


def test_a_stopped_pod_that_the_store_still_knows_is_found(story: Story) -> None:
    ran_once(story)
    story.record.stops[POD] = Stop(POD, BEGIN + SECOND, BEGIN + 2 * SECOND, 0)
    story.known = {POD}
    assert story.verdict().left == [POD]


def test_a_process_that_ended_by_itself_is_found(story: Story) -> None:
    ran_once(story)
    story.record.own_exits.append(POD)
    assert story.verdict().exits == [POD]


@pytest.mark.parametrize("counter", ["enqueued", "succeeded", "claimed"])
def test_a_wrong_counter_is_found(story: Story, counter: str) -> None:
    ran_once(story)
    story.counters[counter] += 1
    counts = ", ".join(f"{name} {count}" for name, count in sorted(story.counters.items()))
    [found, *_] = story.verdict().miscounted
    assert found == f"queue gh, {counter}: 2 not 1 ({counts})"


def _ends_an_attempt(cause: Cause) -> bool:
    try:
        next_transition(AttemptEnd(cause=cause), a_claimed_job(), Rules(), random.Random(1))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.SUCCEEDED}))
def test_a_claim_has_an_end_by_each_cause_that_an_attempt_ends_with(
    story: Story, cause: Cause
) -> None:
    ran_once(story)
    story.counters |= {"claimed": 2, cause.value: 1}
    assert bool(story.verdict().miscounted) is not _ends_an_attempt(cause)


def test_the_queue_of_a_wrong_counter_is_named_and_no_other_makes_up_for_it(story: Story) -> None:
    ran_once(story)
    story.counters["claimed"] += 1
    story.others["other"] = {"released": 1}
    assert story.verdict().miscounted == [
        "queue gh, claimed: 2 not 1 (claimed 2, enqueued 1, succeeded 1)",
        "queue other, claimed: 0 not 1 (released 1)",
    ]


def _beside(story: Story, *, of: int = OTHER) -> None:
    """A second job of the key is run by ``of`` while the first runs."""
    ran_once(story)
    story.note("start", 1.5, pod=of, job_id="01SECOND")
    story.note("end", 2.5, pod=of, job_id="01SECOND")
    for job_id in (ID, "01SECOND"):
        story.record.sendings[job_id] = Sending(BEGIN, BEGIN, permit=("limited.alone", "k"))


def test_two_handlers_of_a_key_that_one_may_have_are_found(story: Story) -> None:
    _beside(story)
    assert story.verdict().crowded == ["('limited.alone', 'k')"]


def test_handlers_of_a_frozen_process_do_not_count_toward_a_key(story: Story) -> None:
    _beside(story)
    story.record.frozen.add(POD)
    assert story.verdict().crowded == []


def test_a_handler_of_a_killed_process_counts_until_its_death(story: Story) -> None:
    _beside(story, of=13)
    story.note("start", 2.6, job_id="01SECOND", token=2)
    story.record.kills[13] = BEGIN + 3 * SECOND
    assert story.verdict().crowded == ["('limited.alone', 'k')"]


@pytest.mark.parametrize(("result", "found"), [("1", []), ("0", [ID]), (None, [ID])])
def test_the_result_of_a_claim_that_was_lost_is_found(
    story: Story, result: str | None, found: list[str]
) -> None:
    ran_once(story)
    story.record.sendings[ID].permit = ("limited.pairs", "k")
    assert story.job is not None
    story.job = structs.replace(story.job, result=result)
    assert story.verdict().late == found


@pytest.mark.parametrize(("result", "found"), [("1", []), ("0", [ID])])
def test_the_result_of_a_lost_claim_is_found_in_a_sequence_too(
    story: Story, result: str, found: list[str]
) -> None:
    ran_once(story)
    story.record.sendings[ID].line = "k"
    assert story.job is not None
    story.job = structs.replace(story.job, result=result)
    assert story.verdict().late == found


def _in_line(story: Story, *, at: float = 2.5, of: int = OTHER) -> None:
    """The first of a sequence runs from 1 to 1.9, and ``of`` runs the second for half a second."""
    ran_once(story)
    assert story.job is not None
    story.job = structs.replace(story.job, result="1")
    story.note("start", at, pod=of, job_id="01SECOND")
    story.note("end", at + 0.5, pod=of, job_id="01SECOND")
    for job_id in (ID, "01SECOND"):
        story.record.sendings[job_id] = Sending(BEGIN, BEGIN, line="k")


def test_jobs_of_a_sequence_that_run_one_after_the_other_are_in_order(story: Story) -> None:
    _in_line(story)
    assert story.verdict().crossed == []


def test_two_jobs_of_a_sequence_at_once_are_found(story: Story) -> None:
    _in_line(story, at=1.5)
    assert f"01SECOND beside {ID}" in story.verdict().crossed


def test_a_job_that_ran_before_an_earlier_one_of_its_sequence_is_found(story: Story) -> None:
    _in_line(story, at=0.1)
    assert story.verdict().crossed == [f"01SECOND before {ID}"]


def test_a_job_that_runs_between_two_attempts_of_an_earlier_one_is_found(story: Story) -> None:
    story.note("start", 0.2, pod=OTHER, token=0)
    story.note("fail", 0.3, pod=OTHER, token=0)
    _in_line(story, at=0.4)
    assert story.verdict().crossed == [f"01SECOND before {ID}"]


def test_a_job_that_may_come_late_is_passed_and_still_runs_beside_no_other(story: Story) -> None:
    _in_line(story, at=0.1)
    story.record.sendings[ID].may_come_late = True
    assert story.verdict().crossed == []
    story.note("start", 1.5, pod=OTHER, job_id="01THIRD")
    story.note("end", 1.6, pod=OTHER, job_id="01THIRD")
    story.record.sendings[JobId("01THIRD")] = Sending(BEGIN, BEGIN, line="k")
    assert story.verdict().crossed == [f"01THIRD beside {ID}"]


@pytest.mark.parametrize("frozen", [POD, OTHER])
def test_runs_of_a_frozen_process_do_not_count_toward_a_sequence(story: Story, frozen: int) -> None:
    _in_line(story, at=1.5)
    story.record.frozen.add(frozen)
    assert story.verdict().crossed == []


def test_a_job_of_a_sequence_in_a_killed_process_counts_until_its_death(story: Story) -> None:
    _in_line(story, at=2.5)
    story.note("start", 0.1, pod=13, token=0)
    story.record.kills[13] = BEGIN + int(2.7 * SECOND)
    assert f"01SECOND beside {ID}" in story.verdict().crossed
