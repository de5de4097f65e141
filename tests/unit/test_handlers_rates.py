"""Rates that handlers declare: what is refused, and which bucket a job asks."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest

from forge_jobs import HandlerRegistry, Rate, RateLimit, RegistrationError, Secret
from forge_jobs.handlers.limits.rates import ask_of
from forge_jobs.model.queues import RateAsk


async def send(customer: str, number: int = 1) -> None: ...


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        (5, "rate: is an int; give Rate(count, per=seconds)"),
        (Rate(0), "rate.capacity: is 0; give at least 1"),
        (Rate(1, per=0), "rate.per: is 0; give a duration above zero"),
        (Rate(1, per=1e-7), "rate.per: is 1e-07; give a microsecond, 1e-06, or more"),
        (Rate(1, per="1m"), "rate.per: is '1m'; give seconds or a timedelta"),  # type: ignore[arg-type]
        (Rate(1, per=float("nan")), "rate.per: is nan; give seconds or a timedelta, above zero"),
        (Rate(1, per=float("inf")), "rate.per: is inf; give seconds or a timedelta, above zero"),
        (Rate(1, name="a,b"), "rate.name: contains a comma"),
        (Rate(1, mode="wait"), "rate.mode: is 'wait'; give 'defer' or 'drop'"),  # type: ignore[arg-type]
        (Rate(1, key="customer"), "rate.key: names no argument"),
        (Rate(1, key=7), "rate.key: is an int; write names"),  # type: ignore[arg-type]
        (Rate(1, key="{customer"), "rate.key: is '{customer': expected '}'"),
        (Rate(1, key="{customer.name}"), "rate.key: holds {customer.name} with more than a name"),
        (Rate(1, key="{customer!r}"), "rate.key: holds {customer} with more than a name"),
        (Rate(1, key="{}"), "rate.key: holds {} with more than a name"),
        (
            Rate(1, key="{client}"),
            "rate.key: names 'client', which is no argument of the handler; give some of customer,"
            " number",
        ),
    ],
)
def test_a_wrong_rate_is_refused_by_field(rate: Any, problem: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        HandlerRegistry().register(send, "mail", rate=rate)
    assert str(refused.value).startswith(f"mail: {problem}")


@pytest.mark.parametrize(
    ("key", "payload", "asked"),
    [
        ("", {"customer": "ada"}, ""),
        ("{customer}", {"customer": "ada"}, "ada"),
        ("c:{customer}/{number}", {"customer": "ada", "number": 7}, "c:ada/7"),
        ("{number}", {"number": 2**63}, str(2**63)),
        ("{customer}", {"customer": ["a", None]}, "#"),
        ("{customer}{number}", {"customer": "ada"}, "ada"),
        ("{customer}", {"customer": ""}, "#"),
        ("{customer}", {"customer": "a,b"}, "#"),
        ("{customer}", {"customer": "x" * 201}, "#"),
        ("{customer}", {"customer": "#1"}, "#"),
        ("{customer}", {"customer": "{number}"}, "{number}"),
    ],
)
def test_the_key_is_made_of_the_arguments(key: str, payload: Any, asked: str) -> None:
    text = msgspec.json.encode(payload).decode()
    ask = ask_of(Rate(1, key=key), "mail", text, is_private=False)
    assert ask.scope == "mail"
    # What is no name, or looks like a hash, is a hash.
    assert ask.key == asked or (asked == "#" and len(ask.key) == 33 and ask.key[0] == "#")


def test_values_that_differ_have_keys_that_differ() -> None:
    values = ["a,b", "a,c", "x" * 201, "x" * 202, "", "#", "\ud800", "\n"]
    payloads = [f'{{"c":"{value}"}}'.replace("\n", "\\n") for value in values[:-2]]
    payloads += ['{"c":"\\n"}', '{"c":["\\n"]}']
    keys = {ask_of(Rate(1, key="{c}"), "k", text, is_private=False).key for text in payloads}
    assert len(keys) == len(payloads)


def test_a_secret_is_never_the_name_of_a_bucket() -> None:
    handlers = HandlerRegistry()

    @handlers.job("call", rate=Rate(1, key="{api_key}"))
    async def call(api_key: Annotated[str, Secret]) -> None: ...

    ask = call.rate_ask('{"api_key":"hunter2"}')
    assert ask is not None
    assert "hunter2" not in ask.key
    assert ask == call.rate_ask('{"api_key":"hunter2"}')
    assert ask != call.rate_ask('{"api_key":"hunter3"}')


def test_without_a_rate_nothing_is_asked() -> None:
    assert HandlerRegistry().register(send, "mail").rate_ask("{}") is None


def test_handlers_may_share_a_limit_of_one_size() -> None:
    handlers = HandlerRegistry()
    handlers.register(send, "mail", rate=Rate(10, per=60, name="smtp"))

    @handlers.job("news", rate=Rate(10, per=timedelta(minutes=1), name="smtp", key="{n}"))
    async def news(n: int) -> None: ...

    @handlers.job("own", rate=Rate(1))
    async def own() -> None: ...

    @handlers.job("free")
    async def free() -> None: ...

    assert handlers.rates() == {"smtp": RateLimit(10, 60), "own": RateLimit(1)}
    assert news.rate_ask('{"n":3}') == RateAsk("smtp", "3")

    handlers.register(test_without_a_rate_nothing_is_asked, "other", rate=Rate(9, 60, name="smtp"))
    with pytest.raises(RegistrationError, match="'other' declares 'smtp' in another size than"):
        handlers.rates()
