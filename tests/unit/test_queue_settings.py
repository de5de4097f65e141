"""Settings of a queue that no store should ever see are refused where they are made."""

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.model.objectives import Objective
from forge_jobs.model.queues import (
    CooldownPolicy,
    QueueChange,
    QueueSettings,
    RateLimit,
    Retention,
)
from forge_jobs.model.retention import FOR_EVER

BEFORE = timedelta(microseconds=-1)
PAUSES = ("base", "cap", "quiet")
AGES = ("done", "dead", "cancelled")
COUNTS = ("max_done", "max_dead", "max_cancelled")
RECORDS = ("cooldown", "retention", "retry")
ODD: tuple[Any, ...] = (5, math.inf, math.nan, True, Decimal("1.5"), Fraction(1, 3), "5", [], {})
"""Values of no setting, but for 5."""
TOO_MANY: tuple[Any, ...] = (10**12 + 1, 2**63, 10**30)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("base", lambda: CooldownPolicy(base=BEFORE)),
        ("quiet", lambda: CooldownPolicy(quiet=BEFORE)),
        ("cap", lambda: CooldownPolicy(base=timedelta(hours=2), cap=timedelta(hours=1))),
        ("done", lambda: Retention(done=BEFORE)),
        ("dead", lambda: Retention(dead=BEFORE)),
        ("cancelled", lambda: Retention(cancelled=BEFORE)),
        ("max_done", lambda: Retention(max_done=-1)),
        ("max_workers", lambda: QueueSettings(max_workers=-1)),
        ("max_workers", lambda: QueueSettings(max_workers=100_001)),
        ("dead_letter", lambda: QueueSettings(dead_letter="a,b")),
        ("dead_letter", lambda: QueueSettings(dead_letter="a b")),
        ("dead_letter", lambda: QueueSettings(dead_letter=None)),  # type: ignore[arg-type]
        ("dead_letter", lambda: QueueChange(dead_letter="a\n")),
        ("dead_letter", lambda: QueueChange(dead_letter=7)),  # type: ignore[arg-type]
        ("objective", lambda: QueueSettings(objective="soon")),
        ("share", lambda: QueueSettings(objective="0% within 1s")),
        ("objective", lambda: QueueSettings(objective=None)),  # type: ignore[arg-type]
        ("objective", lambda: QueueChange(objective="95% within")),
        ("objective", lambda: QueueChange(objective=7)),  # type: ignore[arg-type]
        ("mode", lambda: CooldownPolicy(mode="linear")),  # type: ignore[arg-type]
        *((name, partial(Retention, **{name: each})) for name in COUNTS for each in TOO_MANY),
        *((name, partial(CooldownPolicy, **{name: each})) for name in PAUSES for each in ODD),
        *((name, partial(Retention, **{name: each})) for name in AGES for each in ODD),
        *((name, partial(Retention, **{name: each})) for name in COUNTS for each in ODD[1:]),
        *((name, partial(QueueSettings, **{name: each})) for name in RECORDS for each in ODD),
        *((name, partial(QueueChange, **{name: each})) for name in RECORDS for each in ODD),
        *(("per", partial(RateLimit, 5, each)) for each in (*ODD[1:], 1e300, -1, 0)),
        *(("capacity", partial(RateLimit, each)) for each in (*ODD[1:], 0)),
    ],
)
def test_a_wrong_setting_is_named(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()

    assert refused.value.field == field
    assert refused.value.fix


def test_a_time_beyond_all_bounds_is_not_called_too_short() -> None:
    for per in (1e300, math.inf, 10**400):
        with pytest.raises(InvalidInput, match="at most a hundred years"):
            RateLimit(1, per)


def test_what_is_kept_for_ever_and_longer_is_kept_for_ever() -> None:
    ages = Retention(done=timedelta.max, dead=timedelta.max, cancelled=timedelta.max)
    assert {ages.done, ages.dead, ages.cancelled} == {FOR_EVER}
    cooldown = CooldownPolicy(base=timedelta.max, cap=timedelta.max, quiet=timedelta.max)
    assert {cooldown.base, cooldown.cap, cooldown.quiet} == {timedelta(days=36_500)}


def test_the_bounds_themselves_are_settings() -> None:
    CooldownPolicy(base=timedelta(0), cap=timedelta(0), quiet=timedelta(0))
    Retention(done=timedelta(0), max_done=0)
    assert [QueueSettings(max_workers=n).max_workers for n in (0, 100_000)] == [0, 100_000]


def test_an_objective_has_one_spelling() -> None:
    spellings = ("95% within 30s", "95 % start within 30 s", " 95.0% within 30000ms ")
    assert {QueueSettings(objective=text) for text in spellings} == {
        QueueSettings(objective="95% within 30s")
    }
    assert QueueChange(objective=spellings[1]).objective == "95% within 30s"
    assert QueueSettings(objective=spellings[2]).aim == Objective(0.95, timedelta(seconds=30))
    assert (QueueSettings().aim, QueueChange(objective="").objective) == (None, "")
