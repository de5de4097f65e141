"""Operations become requests by their signatures."""

import inspect
from typing import Any

import msgspec
import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.operating.settings.queues import QueueEdit
from forge_jobs.web.api.binding import _body_of, _Rest, bound_operations
from forge_jobs.web.api.bodies import WhichBody
from forge_jobs.web.api.document import openapi


def rest(name: str, form: Any, *default: Any) -> _Rest:
    kind = inspect.Parameter.KEYWORD_ONLY
    [given] = default or (inspect.Parameter.empty,)
    return _Rest(inspect.Parameter(name, kind, default=given), form, form, not default)


def test_one_record_is_the_body_and_options_beside_are_in_the_query() -> None:
    name, body = _body_of("x", [rest("edit", QueueEdit), rest("reason", str, "")])
    assert (name, body.__bases__) == ("edit", (QueueEdit,))


def test_several_arguments_are_fields_of_the_body() -> None:
    given = [rest("verb", str), rest("which", JobFilter), rest("all_jobs", bool, False)]
    name, body = _body_of("x", given)

    read = msgspec.json.decode(b'{"verb": "a", "which": {"all": true}}', type=body)
    assert (name, read.verb, read.which) == ("", "a", WhichBody(all=True))
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"which": {"all": true}}', type=body)


def test_every_operation_is_described_once() -> None:
    described = msgspec.json.decode(openapi(""))
    ids = [each["operationId"] for path in described["paths"].values() for each in path.values()]
    operations = [each.operation.name for each in bound_operations()]
    # The stream is no operation: no command has one, and no method of the operator.
    assert sorted(ids) == sorted(["live", *operations])


def test_json_of_a_document_may_be_any_value() -> None:
    schemas = msgspec.json.decode(openapi(""))["components"]["schemas"]

    for name, field in (
        ("JobView", "payload"),
        ("JobView", "trace"),
        ("ActionView", "before"),
        ("ActionView", "after"),
    ):
        assert schemas[name]["properties"][field] == {}
