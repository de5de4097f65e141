"""The default queue of a kind."""

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.routing import checked_router, named_queues, prefix_router


def test_without_a_table_the_part_before_the_first_dot_is_the_queue() -> None:
    assert prefix_router()("gh.issues.sync") == "gh"


@pytest.mark.parametrize("kind", ["gh", ".gh", "", "."])
def test_a_kind_without_a_prefix_is_not_routed(kind: str) -> None:
    assert prefix_router()(kind) is None


def test_the_longest_prefix_wins_whatever_the_order() -> None:
    route = prefix_router({"gh.": "gh", "gh.issues.": "issues", "": "rest"})

    assert [route(kind) for kind in ("gh.issues.sync", "gh.pull", "mail")] == [
        "issues",
        "gh",
        "rest",
    ]


def test_a_kind_without_a_matching_prefix_is_not_routed() -> None:
    assert prefix_router({"gh.": "gh"})("mail.send") is None


def test_a_prefix_is_plain_text() -> None:
    assert prefix_router({"g?.": "wrong", "g*": "wrong"})("gh.sync") is None


def test_a_prefix_router_refuses_a_queue_that_is_no_name() -> None:
    with pytest.raises(InvalidInput, match="router"):
        prefix_router({"gh.": "a,b"})


@pytest.mark.parametrize("returned", ["", "a,b", 7, "x" * 201])
def test_what_a_callable_returns_is_checked(returned: str) -> None:
    with pytest.raises(InvalidInput, match=r"router\('gh.sync'\)"):
        checked_router(lambda _: returned)("gh.sync")


def test_a_callable_that_raises_is_told_as_bad_input_with_its_kind() -> None:
    def broken(kind: str) -> str:
        raise KeyError(kind)

    with pytest.raises(InvalidInput, match="KeyError for the kind"):
        checked_router(broken)("gh.sync")


def test_a_handler_names_the_queue_before_the_router_and_aliases_go_with_it() -> None:
    handlers = HandlerRegistry()

    @handlers.job("gh.sync", queue="busy", aliases=["old.sync"])
    def sync() -> None: ...

    @handlers.job("gh.other", aliases=["else.other"])
    def other() -> None: ...

    assert named_queues(handlers, prefix_router()) == {
        "gh.sync": "busy",
        "old.sync": "busy",
        "gh.other": "gh",
        "else.other": "gh",
    }
    assert named_queues(handlers, None) == {"gh.sync": "busy", "old.sync": "busy"}
