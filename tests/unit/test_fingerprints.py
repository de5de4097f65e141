"""Failures that differ in numbers, ids and quoted parts alone are one group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.failures.fingerprints import error_group, plain_message


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("card 4242 declined for cus_9s6XKzkN", "card … declined for …"),
        ("can't parse 'abc def', isn't \"foo\"", "can't parse …, isn't …"),
        ("id 0193f2c4-7d2e-7b1c-a1f0-aaaabbbbcccc at 0x7f3c2", "id … at …"),
        ("commit deadbeefcafe of 01JD3ZVX8Q4W9T2M6N7P5R1S0A", "commit … of …"),
        ("timeout after 3.25s at 2026-11-20T10:00:00+00:00", "timeout after … at …"),
        ("missing ids: 1, 2, 3", "missing ids: …"),
        ("[Errno 111] no way to ('127.0.0.1', 5432)", "[Errno …] no way to (…)"),
        ("id abcdefab-abcd-abcd-abcd-abcdefabcdef", "id …"),
        ("-5 is 12% below", "… is … below"),
        ("several\n  lines\tand  spaces", "several lines and spaces"),
        ("٣٤ in other digits", "… in other digits"),
        ("", ""),
        ("decade is a word", "decade is a word"),
    ],
)
def test_changing_parts_of_a_message_are_left_out(message: str, plain: str) -> None:
    assert plain_message(message) == plain


def test_a_quotation_that_the_end_of_the_looked_at_part_cuts_is_a_changing_part() -> None:
    start = "x " * 450 + "is '"
    assert plain_message(start + "a" * 200) == plain_message(start + "b" * 2000)


def test_the_id_of_a_group_never_changes() -> None:
    """Other releases, pods and stores must find the same group."""
    assert error_group("gh.fetch", "ValueError", "card 42 declined") == "tc3uelz3pvbi"
    assert error_group("gh.fetch", "ValueError", "card 43 declined") == "tc3uelz3pvbi"


def test_kind_type_and_words_tell_groups_apart() -> None:
    failures = [("a", "T", "m"), ("b", "T", "m"), ("a", "U", "m"), ("a", "T", "n"), ("aT", "", "m")]
    assert len({error_group(*each) for each in failures}) == len(failures)


@given(st.text(), st.text(), st.text())
def test_any_failure_has_a_short_id(kind: str, error_type: str, message: str) -> None:
    group = error_group(kind, error_type, message)
    assert group == error_group(kind, error_type, message)
    assert len(group) == 12
    assert group.isascii()
    assert group.isalnum()
    assert len(plain_message(message)) <= 300


@given(st.integers(), st.integers(), st.uuids(), st.uuids())
def test_numbers_and_ids_do_not_count(a: int, b: int, one: object, other: object) -> None:
    assert plain_message(f"job {one} got {a} of 'x{a}'") == plain_message(
        f"job {other} got {b} of 'y'"
    )
