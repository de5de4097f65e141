"""Retry policies as texts: written and read, the policy is the same."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs import Delays, Exponential, Fixed, Linear
from forge_jobs.errors import InvalidInput
from forge_jobs.model.retries import Retry, parse_retry, retry_text

SPANS = st.integers(1, 86_400).map(lambda seconds: timedelta(seconds=seconds))
POLICIES: st.SearchStrategy[Retry] = st.one_of(
    st.builds(
        Exponential,
        base=SPANS,
        cap=SPANS,
        factor=st.integers(10, 100).map(lambda tenths: tenths / 10),
        jitter=st.booleans(),
    ),
    st.builds(Linear, SPANS, cap=SPANS, jitter=st.booleans()),
    st.builds(Fixed, SPANS, jitter=st.booleans()),
    st.builds(Delays, st.lists(SPANS, min_size=1, max_size=4).map(tuple), jitter=st.booleans()),
)


@given(POLICIES)
def test_a_policy_is_read_as_it_was_written(policy: Retry) -> None:
    assert parse_retry(retry_text(policy)) == policy


@pytest.mark.parametrize(
    "text",
    [
        "fixed:30s:factor=3",
        "exponential:factor=0.5",
        "exponential:factor=nan",
        "exponential:jitter=maybe",
        "exponential:cap=1h",
        "fixed:jitter=no:30s",
        "fixed:30s:jitter=no:jitter=yes:x=1",
    ],
)
def test_a_wrong_part_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_retry(text)
