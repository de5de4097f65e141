"""Where claims begin while many dead rows stand in front of a queue."""

from forge_jobs.storage.sql.postgres.short.fronts import EVERYTHING, FOR_S, MANY, Fronts, Place

ASKED = 10


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def after(walked: int, clock: Clock, *, got: int = ASKED) -> Fronts:
    """Return the claim cursors after one claim of everything."""
    fronts = Fronts(clock)
    assert fronts.note("q", EVERYTHING, Place(0, 5), walked=walked, asked=ASKED, got=got)
    return fronts


def test_a_queue_without_dead_rows_is_looked_at_from_its_beginning() -> None:
    assert after(ASKED + MANY, Clock()).of("q") == EVERYTHING


def test_many_dead_rows_are_passed_by_for_a_while() -> None:
    clock = Clock()
    fronts = after(ASKED + MANY + 1, clock)
    assert fronts.of("q") == Place(0, 5)
    assert fronts.of("other") == EVERYTHING
    clock.now = FOR_S
    assert fronts.of("q") == EVERYTHING


def test_the_front_moves_with_the_claims_and_lasts_no_longer_for_it() -> None:
    clock = Clock()
    fronts = after(5_000, clock)
    clock.now = FOR_S / 2
    assert fronts.note("q", Place(0, 5), Place(0, 8), walked=0, asked=ASKED, got=ASKED)
    assert fronts.of("q") == Place(0, 8)
    clock.now = FOR_S
    assert fronts.of("q") == EVERYTHING


def test_a_claim_from_a_front_that_comes_short_has_not_seen_all() -> None:
    fronts = after(5_000, Clock())
    start = fronts.of("q")
    assert not fronts.note("q", start, Place(0, 8), walked=0, asked=ASKED, got=ASKED - 1)
    assert fronts.of("q") == EVERYTHING
    assert not fronts.note("q", start, None, walked=0, asked=ASKED, got=0)


def test_a_claim_of_everything_that_comes_short_has_seen_all() -> None:
    assert after(5_000, Clock(), got=1).of("q") == EVERYTHING


def test_a_call_that_claims_nothing_leaves_the_front() -> None:
    fronts = after(5_000, Clock())
    assert fronts.note("q", fronts.of("q"), None, walked=0, asked=0, got=0)
    assert fronts.of("q") == Place(0, 5)
