"""A schedule is refused where written, with the name of the wrong field."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forge_jobs.clients.schedules import schedule
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import Unique
from forge_jobs.model.unique.keys import UniqueMode

handlers = HandlerRegistry()


@handlers.job("report", queue="reports", max_attempts=2, timeout=30, tags=["nightly"])
def report(repo: str = "octo/repo") -> None: ...


def test_a_handlers_defaults_and_arguments_go_into_its_schedule() -> None:
    spec = schedule("nightly", report.request("my/repo"), "30 2 * * *", timezone="Europe/Berlin")

    assert (spec.kind, spec.queue, spec.payload) == ("report", "reports", '{"repo":"my/repo"}')
    assert (spec.max_attempts, spec.timeout, spec.tags) == (2, timedelta(seconds=30), ("nightly",))
    assert (spec.timezone, spec.catch_up, spec.overlap) == ("Europe/Berlin", "latest", "allow")


def test_a_handler_without_arguments_may_stand_for_its_request() -> None:
    assert schedule("nightly", report, "@daily").kind == "report"


def test_a_handler_whose_result_is_not_kept_keeps_none_of_its_schedule_either() -> None:
    assert not schedule("nightly", EnqueueRequest("r", keep_result=False), "@daily").keep_result
    kept = schedule("nightly", EnqueueRequest("r", result_ttl=timedelta(hours=1)), "@daily")
    assert (kept.keep_result, kept.result_ttl) == (True, timedelta(hours=1))


@pytest.mark.parametrize("mode", ["keep", "error", "replace", "keep-last"])
def test_a_key_of_the_handler_neither_holds_for_its_schedule_nor_stands_in_the_way(
    mode: UniqueMode,
) -> None:
    registry = HandlerRegistry()

    @registry.job("sync", unique=Unique(by=("day",), mode=mode))
    def sync(day: str = "yesterday") -> None: ...

    # A program has to give the field by name. The jobs of a schedule have no key of the handler.
    for what in (sync, sync.request(), sync.request(day="monday"), "sync"):
        spec = schedule("nightly", what, "@daily", registry=registry)
        assert (spec.kind, spec.overlap) == ("sync", "allow")


def test_what_the_request_says_wins_over_the_handler() -> None:
    request = report.request().options(queue="other", max_attempts=None, priority=-1)
    spec = schedule("nightly", request, "@daily")

    assert (spec.queue, spec.max_attempts, spec.priority) == ("other", None, -1)


def test_a_kind_is_looked_up_and_its_payload_checked_where_the_registry_is_at_hand() -> None:
    assert schedule("a", "report", "@daily", registry=handlers).queue == "reports"
    assert schedule("a", "report", "@daily").queue == "default"
    assert schedule("a", "report", "@daily", router=lambda kind: kind).queue == "report"
    with pytest.raises(InvalidInput, match="repo"):
        schedule("a", EnqueueRequest("report", {"repo": 7}), "@daily", registry=handlers)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", {"name": "a,b"}),
        ("name", {"name": "x" * 196}),
        ("expression", {"expression": "61 * * * *"}),
        ("expression", {"expression": "0 0 31 2 *"}),
        ("expression", {"expression": ""}),
        ("expression", {"expression": None}),
        ("timezone", {"timezone": "Mars/Olympus"}),
        ("jitter", {"jitter": -1}),
        ("jitter", {"jitter": timedelta(days=2)}),
        ("window", {"window": 0}),
        ("window", {"window": timedelta(days=367)}),
        ("catch_up", {"catch_up": "some"}),
        ("overlap", {"overlap": "queue"}),
        ("kind", {"what": ""}),
        ("payload", {"what": EnqueueRequest("report", "[1]")}),
        ("what", {"what": 7}),
        ("delay", {"what": EnqueueRequest("report", delay=1)}),
        ("unique_key", {"what": EnqueueRequest("report", unique_key="k")}),
        ("unique", {"what": EnqueueRequest("report", unique=Unique("k"))}),
        ("run_at", {"what": EnqueueRequest("report", run_at=datetime(2026, 1, 1, tzinfo=UTC))}),
    ],
)
def test_what_is_wrong_is_named(field: str, values: dict[str, Any]) -> None:
    fields = {"name": "nightly", "what": "report", "expression": "@daily"} | values
    with pytest.raises(InvalidInput) as refused:
        schedule(**fields)

    assert refused.value.field == field


def test_the_longest_name_leaves_room_for_the_key_of_its_jobs() -> None:
    assert schedule("x" * 195, "report", "@daily", overlap="skip").name == "x" * 195
