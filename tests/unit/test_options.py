"""Options as type checkers and as stores see them, and what the results of a handler are."""

from typing import Any, get_type_hints

import pytest
from msgspec import UnsetType

from forge_jobs import Dead, HandlerRegistry, InvalidInput, JobOptions, RegistrationError, Snoozed
from forge_jobs.handlers.options import CronOptions, HandlerOptions
from forge_jobs.handlers.requests import EnqueueOptions, GivenOptions


def returns(annotation: Any) -> Any:
    def function() -> Any: ...

    function.__annotations__["return"] = annotation
    return HandlerRegistry().register(function, "kind").result_type


def test_outcomes_that_a_handler_returns_are_no_results() -> None:
    assert returns(int | Snoozed) is int
    assert returns(int | str | Dead | None) == int | str | None
    assert returns(Snoozed) is returns(Snoozed | Dead) is Any


def _without_unset(kind: Any) -> Any:
    left = [part for part in getattr(kind, "__args__", ()) if part is not UnsetType]
    return kind if UnsetType not in getattr(kind, "__args__", ()) else _union(left)


def _union(parts: list[Any]) -> Any:
    found = parts[0]
    for part in parts[1:]:
        found |= part
    return found


def test_the_options_of_type_checkers_are_those_of_a_request() -> None:
    own = {"spread"}  # has an inner form beside that of users
    typed = get_type_hints(EnqueueOptions)
    held = {name: _without_unset(kind) for name, kind in get_type_hints(GivenOptions).items()}
    assert list(typed) == list(held)
    assert {n: typed[n] for n in typed if n not in own} == {
        n: held[n] for n in held if n not in own
    }


def test_the_options_of_type_checkers_are_those_of_a_handler() -> None:
    of_the_handler = {"aliases", "middleware", "on_error", "on_retry", "on_dead", "on_done"}
    of_the_registry = {"encryption", "secrets"}
    typed, held = set(JobOptions.__annotations__), set(HandlerOptions.__struct_fields__)
    assert typed - of_the_handler == held - of_the_registry


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prioritty": 1}, "kind: prioritty: is not an option of job; did you mean priority?"),
        ({"colour": 1}, "kind: colour: is not an option of job; give one of aliases, concurrency"),
        ({"timeout": "1h"}, "kind: timeout: is a str; give seconds or a timedelta"),
        ({"keep_result": "no"}, "kind: keep_result: is a str; give True or False"),
        ({"max_crashes": "3"}, "kind: max_crashes: is a str; give a whole number"),
        ({"aliases": "old"}, "kind: aliases: is a str; give a sequence of kinds"),
        ({"retry_on": OSError("x")}, "kind: retry_on: "),
    ],
)
def test_a_wrong_option_of_a_handler_is_refused_in_words(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(RegistrationError) as refused:
        HandlerRegistry().job("kind", **options)
    assert str(refused.value).startswith(says)


def test_a_wrong_option_of_cron_is_refused_where_the_schedule_is_declared() -> None:
    assert set(CronOptions.__annotations__) == {
        "timezone", "jitter", "catch_up", "window", "overlap",
    }  # fmt: skip
    with pytest.raises(InvalidInput, match="time_zone: is not an option of cron; did you mean"):
        HandlerRegistry().cron("@daily", time_zone="UTC")  # type: ignore[call-arg]
