"""How much a claim asks for after calls that got no answer."""

from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.transitions import CLAIM_BYTES, Demand
from forge_jobs.policy.claim_ahead import MAX_CLAIMS_PER_CALL, Appetite
from tests.support.factories import a_claimed_job

CAREFUL = 8


SMALL = a_claimed_job()


def asked(appetite: Appetite, wanted: int) -> Demand:
    limit, size = appetite.jobs(wanted), appetite.max_bytes
    return Demand(worker_ids=(), limit=limit, kinds=frozenset(), max_bytes=size)


def filled(appetite: Appetite, times: int = 1, wanted: int = 100) -> None:
    for _ in range(times):
        demand = asked(appetite, wanted)
        appetite.answered([SMALL] * demand.limit, demand)


def test_all_is_asked_for_at_first() -> None:
    appetite = Appetite()
    filled(appetite)
    assert (appetite.jobs(1_000), appetite.max_bytes) == (1_000, CLAIM_BYTES)


def test_each_call_without_an_answer_halves_it() -> None:
    appetite = Appetite()
    seen = []
    for _ in range(3):
        appetite.unanswered()
        seen.append((appetite.jobs(100), appetite.max_bytes))
    assert seen == [(50, CLAIM_BYTES // 2), (25, CLAIM_BYTES // 4), (12, CLAIM_BYTES // 8)]


def test_after_an_outage_each_full_answer_doubles_it_up_to_what_was_lost_first() -> None:
    appetite = Appetite()
    for _ in range(5):
        appetite.unanswered()
    seen = []
    for _ in range(4):
        filled(appetite)
        seen.append(appetite.max_bytes)
    assert seen == [CLAIM_BYTES // 16, CLAIM_BYTES // 8, CLAIM_BYTES // 4, CLAIM_BYTES // 2]


def test_what_was_lost_is_tried_again_after_several_full_answers() -> None:
    appetite = Appetite()
    appetite.unanswered()
    filled(appetite, CAREFUL - 1)
    assert appetite.max_bytes == CLAIM_BYTES // 2
    filled(appetite)
    assert appetite.max_bytes == CLAIM_BYTES


def test_a_line_that_lets_a_quarter_pass_loses_one_call_in_nine() -> None:
    appetite = Appetite()
    lost = 0
    for _ in range(900):
        if appetite.max_bytes > CLAIM_BYTES // 4:
            lost += 1
            appetite.unanswered()
        else:
            filled(appetite)
    assert 95 <= lost <= 105


def test_an_answer_with_less_than_it_might_have_says_nothing() -> None:
    appetite = Appetite()
    for _ in range(3):
        appetite.unanswered()
    for _ in range(100):
        demand = asked(appetite, 100)
        appetite.answered([], demand)
        appetite.answered([SMALL] * (demand.limit - 1), demand)
    assert appetite.max_bytes == CLAIM_BYTES // 8


def test_an_answer_is_full_by_its_bytes_too() -> None:
    appetite = Appetite()
    for _ in range(2):
        appetite.unanswered()
    appetite.answered([a_claimed_job(payload="x" * (CLAIM_BYTES // 8))], asked(appetite, 100))
    assert appetite.max_bytes == CLAIM_BYTES // 2


@given(st.lists(st.booleans()), st.integers(1, MAX_CLAIMS_PER_CALL))
def test_one_job_is_always_asked_for_and_a_good_line_is_used_again(
    answers: list[bool], wanted: int
) -> None:
    appetite = Appetite()
    for answered in answers:
        if answered:
            filled(appetite, wanted=wanted)
        else:
            appetite.unanswered()
    assert 1 <= appetite.jobs(wanted) <= wanted
    assert 1 <= appetite.max_bytes <= CLAIM_BYTES
    filled(appetite, 10 * CAREFUL, wanted)
    assert appetite.jobs(wanted) == wanted


def test_what_an_answer_brings_is_counted_in_bytes() -> None:
    appetite = Appetite()
    appetite.unanswered()
    appetite.unanswered()
    payload = "ж" * (appetite.max_bytes // 4)
    appetite.answered([a_claimed_job(payload=payload)], asked(appetite, 100))
    assert appetite.max_bytes == CLAIM_BYTES // 2
