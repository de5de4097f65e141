"""Annotations of handlers: accepted and refused arguments, and the errors."""

import inspect
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput, RegistrationError, UndecodablePayload
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.handler import Handler
from forge_jobs.model.progress import Progress

if TYPE_CHECKING:
    from collections import OrderedDict


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    quantity: int = 1


class Order(msgspec.Struct):
    items: list[Item]
    color: Color | None = None


class Address(pydantic.BaseModel):
    street: str
    number: int


async def sync_issue(repo: str, number: int, ctx: JobContext, note: str = "none") -> None:
    """Bring one issue up to date."""


def everything(
    when: datetime,
    day: date,
    span: timedelta,
    ident: uuid.UUID,
    price: Decimal,
    color: Color,
    order: Order,
    address: Address,
    addresses: list[Address],
    mode: Literal["fast", "slow"],
    blob: bytes,
    names: set[str],
    anything: Any,
    small: Annotated[int, msgspec.Meta(le=10)],
    maybe: Address | None = None,
) -> None: ...


EVERYTHING: dict[str, Any] = {
    "when": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "span": timedelta(seconds=1.5),
    "ident": uuid.UUID(int=7),
    "price": Decimal("1.10"),
    "color": Color.BLUE,
    "order": Order([Item("nut", 3), Item("bolt")], Color.RED),
    "address": Address(street="Elm", number=3),
    "addresses": [Address(street="Oak", number=4)],
    "mode": "slow",
    "blob": b"\x00\xff",
    "names": {"a", "b"},
    "anything": {"x": [1, None, "y"]},
    "small": 10,
    "maybe": None,
}


class TestRequests:
    def test_arguments_of_every_supported_type_arrive_as_they_left(self) -> None:
        handler: Handler[..., Any] = Handler(everything, "everything")

        payload = handler.request(**EVERYTHING).payload

        assert handler.decode(str(payload)) == EVERYTHING

    @given(
        repo=st.text(st.characters(exclude_characters="\0", codec="utf-8")),
        number=st.integers(-(2**63), 2**63 - 1),
    )
    def test_any_text_and_number_arrive_as_they_left(self, repo: str, number: int) -> None:
        handler: Handler[..., Any] = Handler(sync_issue, "k")

        payload = str(handler.request(repo, number=number).payload)

        assert handler.decode(payload) == {"repo": repo, "number": number}

    def test_the_context_is_no_part_of_the_payload(self) -> None:
        handler: Handler[..., Any] = Handler(sync_issue, "k")

        assert handler.request("octo/repo", 7).payload == '{"repo":"octo/repo","number":7}'

        assert handler.context_parameter == "ctx"
        with pytest.raises(InvalidInput, match="ctx"):
            handler.request("octo/repo", 7, ctx=None)

    def test_a_default_is_left_to_the_function_and_an_argument_is_stored(self) -> None:
        handler: Handler[..., Any] = Handler(sync_issue, "k")

        assert "note" not in handler.decode(str(handler.request("r", 1).payload))
        assert handler.decode(str(handler.request("r", 1, note="none").payload)) == {
            "repo": "r",
            "number": 1,
            "note": "none",
        }

    def test_unannotated_parameters_take_anything(self) -> None:
        def bare(value, other=None):  # type: ignore[no-untyped-def]
            ...

        handler: Handler[..., Any] = Handler(bare, "bare")

        assert handler.decode('{"value":[1],"other":"x"}') == {"value": [1], "other": "x"}

    def test_keyword_only_parameters_work(self) -> None:
        def keyed(*, number: int) -> None: ...

        handler: Handler[..., Any] = Handler(keyed, "keyed")

        assert handler.decode(str(handler.request(number=1).payload)) == {"number": 1}

    def test_nothing_is_enough_for_a_function_without_parameters(self) -> None:
        def tick() -> None: ...

        handler: Handler[..., Any] = Handler(tick, "tick")

        assert handler.request().payload == "{}"
        assert handler.decode("{}") == {}

    @pytest.mark.parametrize(
        ("arguments", "field", "problem"),
        [
            ({"repo": "r", "number": "7"}, "sync_issue.number", "expected int, got str"),
            ({"repo": 1, "number": 7}, "sync_issue.repo", "expected str, got int"),
            ({"repo": "r"}, "sync_issue", "missing a required argument: 'number'"),
            ({"repo": "r", "number": 7, "nr": 1}, "sync_issue", "unexpected keyword argument"),
            ({"repo": "r\0", "number": 7}, "sync_issue.repo", "NUL"),
            ({"repo": "r", "number": 2**70}, "sync_issue.number", "64 bits"),
            ({"repo": "r", "number": True}, "sync_issue.number", "expected int, got bool"),
            ({"repo": "r", "number": 1.5}, "sync_issue.number", "expected int, got float"),
        ],
    )
    def test_what_does_not_fit_is_refused_by_name(
        self, arguments: dict[str, Any], field: str, problem: str
    ) -> None:
        handler: Handler[..., Any] = Handler(sync_issue, "k")

        with pytest.raises(InvalidInput) as caught:
            handler.request(**arguments)

        assert caught.value.field == field
        assert problem in caught.value.problem

    def test_the_path_leads_into_nested_values(self) -> None:
        handler: Handler[..., Any] = Handler(everything, "everything")
        broken = {**EVERYTHING, "addresses": [Address.model_construct(street="x", number="y")]}

        with (
            pytest.warns(UserWarning, match="Pydantic serializer"),
            pytest.raises(InvalidInput) as caught,
        ):
            handler.request(**broken)

        assert caught.value.field == "everything.addresses[0]"
        assert caught.value.problem.startswith("number: ")


class TestStoredPayloads:
    @pytest.mark.parametrize(
        ("payload", "message"),
        [
            ('{"repo":"r"}', "sync_issue.number: is missing"),
            ('{"repo":"r","number":"x"}', "sync_issue.number: expected int, got str"),
            ('{"repo":"r","number":1,"old":2}', "sync_issue.old: is not a parameter"),
            ("[1]", "sync_issue: expected object, got array"),
            ("", "sync_issue: is not valid JSON"),
            ('{"repo":', "sync_issue: is not valid JSON"),
            ('{"repo":"r","number":1,"ctx":{}}', "sync_issue.ctx: is not a parameter"),
        ],
    )
    def test_one_that_does_not_fit_names_the_field_and_the_problem(
        self, payload: str, message: str
    ) -> None:
        handler: Handler[..., Any] = Handler(sync_issue, "k")

        with pytest.raises(UndecodablePayload) as caught:
            handler.decode(payload)

        assert str(caught.value).startswith(message)

    def test_the_path_leads_into_structs_and_lists(self) -> None:
        def place(order: Order) -> None: ...

        with pytest.raises(UndecodablePayload) as caught:
            Handler(place, "place").decode('{"order":{"items":[{"name":"a"},{"name":2}]}}')

        assert str(caught.value) == "place.order.items[1].name: expected str, got int"

    def test_a_path_can_hold_any_text(self) -> None:
        def count(by_name: dict[str, int]) -> None: ...

        with pytest.raises(UndecodablePayload) as caught:
            Handler(count, "count").decode('{"by_name":{"at `$.x`":"one"}}')

        assert caught.value.field.startswith("count.by_name")
        assert caught.value.problem == "expected int, got str"


class TestResults:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (None, "null"),
            ({"a": [1, "x"]}, '{"a":[1,"x"]}'),
            (Item("nut"), '{"name":"nut","quantity":1}'),
            (Address(street="Elm", number=3), '{"street":"Elm","number":3}'),
            ([Address(street="Elm", number=3)], '[{"street":"Elm","number":3}]'),
        ],
    )
    def test_what_a_handler_returned_becomes_json(self, value: object, text: str) -> None:
        assert Handler(sync_issue, "k").encode_result(value) == text

    @pytest.mark.parametrize(
        "value", [object(), {"x": object()}, [Address(street="a", number=1), object()], "\0"]
    )
    def test_what_json_cannot_carry_is_refused_as_the_result(self, value: object) -> None:
        with pytest.raises(InvalidInput) as caught:
            Handler(sync_issue, "k").encode_result(value)

        assert caught.value.field.startswith("result")


def positional(a: int, /) -> None: ...
def starred(*items: int) -> None: ...
def keywords(**options: int) -> None: ...
def two_contexts(a: JobContext, b: JobContext) -> None: ...
def unreadable(a: Callable[[], int]) -> None: ...
def custom(a: inspect.Signature) -> None: ...
def nested_custom(a: dict[str, list[inspect.Signature]]) -> None: ...
def two_customs(a: Address | inspect.Signature) -> None: ...
def stored(a: Progress | None) -> None: ...
def unresolved(a: "OrderedDict[str, int]") -> None: ...


class TestRegistration:
    @pytest.mark.parametrize(
        ("function", "words"),
        [
            (positional, ("positional: a", "positional-only", "remove the '/'")),
            (starred, ("*items", "list parameter")),
            (keywords, ("**options", "dict parameter")),
            (two_contexts, ("a and b", "JobContext")),
            (unreadable, ("unreadable: a",)),
            (custom, ("custom: a", "Signature")),
            (nested_custom, ("nested_custom: a", "Signature")),
            (two_customs, ("two_customs: a",)),
            (stored, ("stored: a", "stored record", "JobProgress")),
            (unresolved, ("unresolved", "annotation of a", "at run time")),
            (dict, ("dict",)),
        ],
    )
    def test_a_function_that_no_payload_can_call_is_refused_with_the_fix(
        self, function: Callable[..., Any], words: tuple[str, ...]
    ) -> None:
        with pytest.raises(RegistrationError) as caught:
            Handler(function, "k")

        for word in words:
            assert word in str(caught.value)

    @pytest.mark.parametrize(
        "annotation", [JobContext, JobContext | None, "JobContext", "forge_jobs.JobContext"]
    )
    def test_the_context_is_found_however_it_is_annotated(self, annotation: object) -> None:
        def run(number: int, job: Any) -> None: ...

        run.__annotations__["job"] = annotation

        handler: Handler[..., Any] = Handler(run, "k")

        assert handler.context_parameter == "job"
        assert handler.decode('{"number":1}') == {"number": 1}

    def test_a_callable_object_and_a_method_are_handlers_too(self) -> None:
        class Greeter:
            async def __call__(self, name: str) -> None: ...

            def greet(self, name: str) -> None: ...

        called: Handler[..., Any] = Handler(Greeter(), "a")
        bound: Handler[..., Any] = Handler(Greeter().greet, "b")

        assert (called.is_async, bound.is_async) == (True, False)
        for handler in (called, bound):
            assert handler.decode(str(handler.request("x").payload)) == {"name": "x"}

    def test_a_handler_is_still_its_function(self) -> None:
        def double(number: int) -> int:
            """Twice."""
            return 2 * number

        handler: Handler[..., Any] = Handler(double, "double")

        assert handler(4) == 8
        assert handler.__name__ == "double"
        assert handler.__wrapped__ is double
        assert not handler.is_async
        assert Handler(sync_issue, "k").is_async
