"""Which queue a kind goes to when nobody said so."""

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.runtime.routing import (
    checked_router,
    default_router,
    prefix_router,
    queue_for,
)


def test_the_default_router_takes_what_is_before_the_first_dot_when_it_is_declared() -> None:
    route = default_router(["gh", "slack"])

    assert route("gh.issues.sync") == "gh"


@pytest.mark.parametrize("kind", ["other.sync", "gh", "ghx.sync", ".gh", "GH.sync"])
def test_the_default_router_has_no_opinion_on_other_kinds(kind: str) -> None:
    assert default_router(["gh"])(kind) is None


def test_the_longest_prefix_wins_whatever_the_order() -> None:
    route = prefix_router({"gh.": "gh", "gh.issues.": "issues", "": "rest"})

    assert [route(kind) for kind in ("gh.issues.sync", "gh.pull", "mail")] == [
        "issues",
        "gh",
        "rest",
    ]


def test_a_kind_without_a_matching_prefix_goes_to_the_default_queue() -> None:
    route = prefix_router({"gh.": "gh"})

    assert route("mail.send") is None
    assert queue_for("mail.send", route) == "default"
    assert queue_for("gh.sync", route) == "gh"


def test_a_prefix_is_plain_text() -> None:
    assert prefix_router({"g?.": "wrong", "g*": "wrong"})("gh.sync") is None


def test_a_prefix_router_refuses_a_queue_that_is_no_name() -> None:
    with pytest.raises(InvalidInput, match="router"):
        prefix_router({"gh.": "a,b"})


def test_a_callable_is_a_router() -> None:
    assert queue_for("gh.sync", str.upper) == "GH.SYNC"


@pytest.mark.parametrize("returned", ["", "a,b", 7, "x" * 201])
def test_what_a_callable_returns_is_checked(returned: str) -> None:
    with pytest.raises(InvalidInput, match=r"router\('gh.sync'\)"):
        checked_router(lambda _: returned)("gh.sync")


def test_a_callable_that_raises_is_told_as_bad_input_with_its_kind() -> None:
    def broken(kind: str) -> str:
        raise KeyError(kind)

    with pytest.raises(InvalidInput, match="KeyError for the kind"):
        checked_router(broken)("gh.sync")
