"""``run_inline``: one handler once, as a worker would run it."""

import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from forge_jobs import (
    Again,
    Dead,
    Failed,
    Handler,
    InvalidInput,
    RateLimited,
    Snoozed,
    Throttled,
    UndecodablePayload,
)
from forge_jobs.runtime.queue.context_calls import NeverAwaited
from forge_jobs.testing import Kit, fake_context, run_inline
from tests.kit import shop

pytestmark = pytest.mark.anyio


async def test_it_returns_what_the_handler_returns(forge_kit: Kit) -> None:
    assert await forge_kit.run_inline(shop.send_receipt, 7) == "7 in attempt 1"
    packed = await forge_kit.run_inline(shop.pack, order=shop.Order(7))
    assert packed == shop.Order(7)


async def test_the_arguments_go_through_the_payload(forge_kit: Kit) -> None:
    order = shop.Order(7)
    assert await forge_kit.run_inline(shop.pack, order) is not order
    with pytest.raises(InvalidInput, match=r"send_receipt\.order"):
        await forge_kit.run_inline(shop.send_receipt, "seven")


async def test_a_request_needs_the_registry_only(forge_kit: Kit) -> None:
    assert await forge_kit.run_inline(shop.send_receipt.request(8)) == "8 in attempt 1"


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("snoozed", Snoozed),
        ("returned", Snoozed),
        ("throttled", Throttled),
        ("failed", Failed),
        ("dead", Dead),
        ("limited", RateLimited),
        ("error", ValueError),
        ("class", TypeError),
        ("unstorable", InvalidInput),
    ],
)
async def test_it_raises_what_the_handler_says(
    forge_kit: Kit, how: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await forge_kit.run_inline(shop.end, how)


async def test_the_timeout_holds(forge_kit: Kit) -> None:
    with pytest.raises(TimeoutError, match="did not end within"):
        await forge_kit.run_inline(shop.wait_long)


async def test_a_forgotten_await_is_an_error(forge_kit: Kit) -> None:
    with pytest.raises(NeverAwaited, match=r"await ctx\.enqueue"):
        await forge_kit.run_inline(shop.forget)
    await forge_kit.assert_enqueued(count=0)


async def test_what_a_handler_enqueues_is_stored(forge_kit: Kit) -> None:
    context = fake_context()
    await forge_kit.run_inline(shop.split, [1, 2], context=context)
    await forge_kit.assert_enqueued(shop.send_receipt, count=2)
    assert [request.kind for request in context.enqueued] == ["mail.receipt"] * 2


async def test_without_a_store_it_is_only_recorded() -> None:
    context = fake_context()
    await run_inline(shop.split, [1, 2], context=context)
    assert [request.payload for request in context.enqueued] == ['{"order":1}', '{"order":2}']


async def test_the_context_of_the_test_is_used(forge_kit: Kit) -> None:
    context = fake_context(attempt=3)
    assert await forge_kit.run_inline(shop.send_receipt, 7, context=context) == "7 in attempt 3"


async def test_what_is_no_handler_is_refused(forge_kit: Kit) -> None:
    wrong: list[Callable[[], Awaitable[object]]] = [
        lambda: forge_kit.run_inline(shop.Order, 7),  # type: ignore[call-overload]
        lambda: forge_kit.run_inline(shop.send_receipt.request(7), 8),
        lambda: run_inline(shop.send_receipt.request(7)),  # type: ignore[call-overload]
    ]
    for call in wrong:
        with pytest.raises(InvalidInput, match=r"^handler"):
            await call()


async def test_an_old_payload_is_refused_as_by_a_worker(forge_kit: Kit) -> None:
    request = shop.send_receipt.request(7)
    plain: Handler[..., None] = Handler(lambda order, copy: None, "mail.receipt")
    shop_handlers = forge_kit.handlers
    assert shop_handlers.get("mail.receipt") is shop.send_receipt
    other = type(shop_handlers)()
    other.add(plain)
    kit = Kit(forge_kit.storage, other)
    with pytest.raises((InvalidInput, UndecodablePayload)):
        await kit.run_inline(request)


def test_a_plain_function_runs_on_the_thread_of_a_test_without_a_loop(forge_kit: Kit) -> None:
    shop.threads.clear()
    forge_kit.sync.run_inline(shop.pack, shop.Order(1))
    forge_kit.sync.enqueue(shop.pack.request(shop.Order(2)))
    forge_kit.sync.drain(reraise=True)
    assert shop.threads == [threading.get_ident()] * 2


async def test_and_on_another_thread_beside_a_loop(forge_kit: Kit) -> None:
    shop.threads.clear()
    await forge_kit.run_inline(shop.pack, shop.Order(1))
    assert threading.get_ident() not in shop.threads


async def test_it_returns_again_also_where_that_was_raised(forge_kit: Kit) -> None:
    for page in (1, 2):
        found = await forge_kit.run_inline(shop.pages, page, 4, after=60)
        assert isinstance(found, Again)
        assert (found.after, found.payload) == (
            timedelta(minutes=1),
            {"page": page + 1, "last": 4, "after": 60},
        )
    last = await forge_kit.run_inline(shop.pages, 4, 4, context=fake_context(occurrence=9))
    assert last == "4 pages in 9"


async def test_arguments_of_again_that_do_not_fit_are_raised(forge_kit: Kit) -> None:
    with pytest.raises(InvalidInput, match=r"pages_badly\.page"):
        await forge_kit.run_inline(shop.pages_badly)
