"""Settings of a queue that no store should ever see are refused where they are made."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.model.objectives import Objective
from forge_jobs.model.queues import CooldownPolicy, QueueChange, QueueSettings, Retention

BEFORE = timedelta(microseconds=-1)


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
    ],
)
def test_a_wrong_setting_is_named(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()

    assert refused.value.field == field


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
