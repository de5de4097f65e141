"""How much a claim asks for after calls that got no answer."""

from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.transitions import CLAIM_BYTES
from forge_jobs.policy.claim_ahead import MAX_CLAIMS_PER_CALL, Appetite


def test_all_is_asked_for_at_first() -> None:
    appetite = Appetite()
    appetite.answered()
    assert (appetite.jobs(1_000), appetite.max_bytes) == (1_000, CLAIM_BYTES)


def test_each_call_without_an_answer_halves_it_and_each_answer_doubles_it() -> None:
    appetite = Appetite()
    seen = []
    for step in (appetite.unanswered, appetite.unanswered, appetite.answered, appetite.answered):
        step()
        seen.append((appetite.jobs(100), appetite.max_bytes))
    assert seen == [
        (50, CLAIM_BYTES // 2),
        (25, CLAIM_BYTES // 4),
        (50, CLAIM_BYTES // 2),
        (100, CLAIM_BYTES),
    ]


@given(st.lists(st.booleans()), st.integers(1, MAX_CLAIMS_PER_CALL))
def test_one_job_is_always_asked_for_and_a_good_line_is_soon_used_again(
    answers: list[bool], wanted: int
) -> None:
    appetite = Appetite()
    for answered in answers:
        appetite.answered() if answered else appetite.unanswered()
    assert 1 <= appetite.jobs(wanted) <= wanted
    assert 1 <= appetite.max_bytes <= CLAIM_BYTES
    for _ in range(10):
        appetite.answered()
    assert appetite.jobs(wanted) == wanted
