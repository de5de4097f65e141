"""Where claims begin while many dead rows stand in front of a queue."""

import pytest

from forge_jobs.storage.sql.postgres.short.claim_cursors import (
    EVERYTHING,
    FOR_S,
    MANY,
    ClaimCursors,
    Place,
)

ASKED = 10


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def after(walked: int, clock: Clock, *, got: int = ASKED) -> ClaimCursors:
    """Return the claim cursors after one claim of everything."""
    cursors = ClaimCursors(clock)
    assert cursors.note("q", EVERYTHING, Place(0, 5), walked=walked, asked=ASKED, got=got)
    return cursors


def test_a_queue_without_dead_rows_is_looked_at_from_its_beginning() -> None:
    assert after(ASKED + MANY, Clock()).of("q") == EVERYTHING


def test_many_dead_rows_are_passed_by_for_a_while() -> None:
    clock = Clock()
    cursors = after(ASKED + MANY + 1, clock)
    assert cursors.of("q") == Place(0, 5)
    assert cursors.of("other") == EVERYTHING
    clock.now = FOR_S
    assert cursors.of("q") == EVERYTHING


def test_the_front_moves_with_the_claims_and_lasts_no_longer_for_it() -> None:
    clock = Clock()
    cursors = after(5_000, clock)
    clock.now = FOR_S / 2
    assert cursors.note("q", Place(0, 5), Place(0, 8), walked=0, asked=ASKED, got=ASKED)
    assert cursors.of("q") == Place(0, 8)
    clock.now = FOR_S
    assert cursors.of("q") == EVERYTHING


def test_a_claim_from_a_front_that_comes_short_has_not_seen_all() -> None:
    cursors = after(5_000, Clock())
    start = cursors.of("q")
    assert not cursors.note("q", start, Place(0, 8), walked=0, asked=ASKED, got=ASKED - 1)
    assert cursors.of("q") == EVERYTHING
    assert not cursors.note("q", start, None, walked=0, asked=ASKED, got=0)


def test_a_claim_of_everything_that_comes_short_has_seen_all() -> None:
    assert after(5_000, Clock(), got=1).of("q") == EVERYTHING


def test_a_call_that_claims_nothing_leaves_the_front() -> None:
    cursors = after(5_000, Clock())
    assert cursors.note("q", cursors.of("q"), None, walked=0, asked=0, got=0)
    assert cursors.of("q") == Place(0, 5)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_claim_of_before_moves_no_front_that_has_begun_since(is_first: bool) -> None:
    """Jobs have come to stand before the front. One claim of everything does not take them all."""
    clock = Clock()
    cursors = after(5_000, clock)
    started = cursors.of("q")
    clock.now = FOR_S
    assert cursors.of("q") == EVERYTHING
    answers = [(EVERYTHING, Place(-1, 7), 5_000), (started, Place(0, 6), 0)]
    for start, first, walked in answers if is_first else reversed(answers):
        assert cursors.note("q", start, first, walked=walked, asked=ASKED, got=ASKED)
    assert cursors.of("q") == Place(-1, 7)


def test_of_two_claims_of_everything_the_front_is_the_earlier_place() -> None:
    cursors = ClaimCursors(Clock())
    for first in (Place(-1, 7), Place(0, 5)):
        assert cursors.note("q", EVERYTHING, first, walked=5_000, asked=ASKED, got=ASKED)
    assert cursors.of("q") == Place(-1, 7)
