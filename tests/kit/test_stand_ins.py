"""Fakes of handlers that must not run, and overrides of what is injected."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from forge_jobs import (
    Depends,
    HandlerRegistry,
    InvalidInput,
    JobContext,
    JobStatus,
    QueueRuntime,
    RegistrationError,
    Shared,
    Snoozed,
)
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing import Kit
from forge_jobs.testing.kit.fixtures import lend
from tests.kit import shop
from tests.support.factories import enqueue_one

pytestmark = pytest.mark.anyio

notes: list[str] = []


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    notes.clear()


def address() -> str:
    raise AssertionError("the address of production")


def pool(address: str = Shared(address)) -> str:
    return f"pool at {address}"


def session(pool: str = Shared(pool)) -> str:
    return f"session of {pool}"


def clerk(session: Annotated[str, Depends(session)]) -> str:
    return f"clerk with {session}"


async def lifespan(pool: str = Shared(pool)) -> AsyncIterator[dict[str, Any]]:
    notes.append(f"begins with {pool}")
    yield {"pool": pool}


async def around(session: str = Depends(session)) -> AsyncIterator[None]:
    notes.append(f"around with {session}")
    yield


handlers = HandlerRegistry(lifespan=lifespan)


@handlers.job("file", aliases=["file.old"], middleware=[around])
def file(order: int, clerk: str = Depends(clerk)) -> str:
    notes.append(f"files {order}")
    return clerk


@handlers.job("plain", executor="process")
def plain(number: int) -> int:
    return os.getpid()


@pytest.fixture
def kit(forge_storage: Storage) -> Kit:
    """A kit whose program has a pool that no test may open."""
    return Kit(forge_storage, handlers)


class TestFakes:
    async def test_a_fake_runs_in_place_of_the_handler_and_keeps_the_arguments(
        self, forge_kit: Kit
    ) -> None:
        receipt = forge_kit.fake(shop.send_receipt, returns="sent")
        await forge_kit.enqueue(shop.split.request([1, 2]))

        drained = await forge_kit.drain()

        assert receipt.calls == [{"order": 1}, {"order": 2}]
        assert [run.result for run in drained[1:]] == ['"sent"', '"sent"']
        assert "order" in repr(receipt)

    async def test_a_fake_raises_and_is_retried_as_the_handler_would_be(
        self, forge_kit: Kit
    ) -> None:
        receipt = forge_kit.fake("mail.receipt", raises=ConnectionError("no mail today"))
        await forge_kit.enqueue(shop.send_receipt.request(1), max_attempts=2)
        assert (await forge_kit.drain()).counts == {"failed": 1}
        receipt.raises = Snoozed(60)
        await forge_kit.advance(hours=1)
        assert (await forge_kit.drain()).counts == {"pending": 1}
        receipt.raises, receipt.returns = None, "at last"
        await forge_kit.advance(hours=1)
        assert (await forge_kit.drain()).counts == {"done": 1}
        assert receipt.calls == [{"order": 1}] * 3

    async def test_inline_too_by_handler_and_by_request(self, forge_kit: Kit) -> None:
        receipt = forge_kit.fake(shop.send_receipt, returns="sent")
        assert await forge_kit.run_inline(shop.send_receipt, 1) == "sent"
        assert await forge_kit.run_inline(shop.send_receipt.request(2)) == "sent"
        assert receipt.calls == [{"order": 1}, {"order": 2}]
        receipt.raises = ConnectionError
        with pytest.raises(ConnectionError):
            await forge_kit.run_inline(shop.send_receipt, 1)

    async def test_nothing_is_injected_into_a_fake(self, kit: Kit) -> None:
        filed = kit.fake(file)
        assert await kit.run_inline(file, 7) is None
        assert filed.calls == [{"order": 7}]
        assert notes == []

    async def test_a_fake_needs_no_process(self, kit: Kit) -> None:
        numbers = kit.fake(plain, returns=2)
        with lend() as lent:
            other = lent.kit(kit.handlers)
            await other.enqueue(plain.request(1))
            kit.override(pool, lambda: "pool")
            assert (await lent.kit(kit.handlers).drain()).counts == {"done": 1}
        assert numbers.calls == [{"number": 1}]

    async def test_arguments_are_decoded_and_results_must_be_storable(self, forge_kit: Kit) -> None:
        packed = forge_kit.fake(shop.pack, returns=object())
        with pytest.raises(InvalidInput, match="result"):
            await forge_kit.run_inline(shop.pack, shop.Order(7))
        assert packed.calls == [{"order": shop.Order(7)}]
        with pytest.raises(InvalidInput, match=r"send_receipt\.order"):
            await forge_kit.run_inline(shop.send_receipt, "seven")

    async def test_a_pod_of_the_test_takes_the_fakes_along(self, forge_kit: Kit) -> None:
        receipt = forge_kit.fake(shop.send_receipt, returns="sent")
        runtime = QueueRuntime(forge_kit.storage, forge_kit.handlers).with_queues("mail")
        async with runtime.start() as handle:
            outcome = await handle.enqueue(shop.send_receipt.request(7))
            assert await handle.result(outcome.job_id, timeout=50) == "sent"
        assert receipt.calls == [{"order": 7}]

    async def test_the_program_itself_stays_as_it_was(self, forge_storage: Storage) -> None:
        kit = Kit(forge_storage, shop.handlers)
        kit.fake(shop.send_receipt, returns="sent")
        assert await kit.run_inline(shop.send_receipt, 7) == "sent"
        other = Kit(forge_storage, shop.handlers)
        assert await other.run_inline(shop.send_receipt, 7) == "7 in attempt 1"
        assert other.handlers is shop.handlers

    async def test_an_unknown_kind_is_refused(self, forge_kit: Kit) -> None:
        with pytest.raises(InvalidInput, match=r"'mail\.recipe', which the registry does not know"):
            forge_kit.fake("mail.recipe")


class TestOverrides:
    async def test_wherever_the_factory_is_needed(self, kit: Kit) -> None:
        kit.override(pool, lambda: "a dict")

        assert await kit.run_inline(file, 7) == "clerk with session of a dict"

        assert notes == ["around with session of a dict", "files 7"]
        await kit.enqueue(file.request(8))
        [run] = await kit.drain(reraise=True)
        assert run.result == '"clerk with session of a dict"'
        assert notes[2:] == ["begins with a dict", "around with session of a dict", "files 8"]

    async def test_in_hooks(self, forge_storage: Storage) -> None:
        async def note(session: str = Depends(session)) -> None:
            notes.append(f"done with {session}")

        handlers = HandlerRegistry(on_done=note)

        @handlers.job("work")
        async def work() -> None: ...

        kit = Kit(forge_storage, handlers)
        kit.override(pool, lambda: "a dict")
        await kit.enqueue(work.request())
        await kit.drain(reraise=True)
        assert notes == ["done with session of a dict"]

    async def test_what_a_shared_value_needs(self, kit: Kit) -> None:
        kit.override(address, lambda: "home")
        assert await kit.run_inline(file, 7) == "clerk with session of pool at home"
        await kit.enqueue(file.request(8))
        await kit.drain(reraise=True)
        assert "begins with pool at home" in notes

    async def test_a_replacement_has_needs_and_clean_ups_of_its_own(self, kit: Kit) -> None:
        def books() -> Iterator[str]:
            yield "books"
            notes.append("books are closed")

        def other(ctx: JobContext, books: str = Depends(books)) -> str:
            return f"{books} in attempt {ctx.attempt}"

        kit.override(pool, lambda: "nothing")
        kit.override(session, other)
        assert await kit.run_inline(file, 7) == "clerk with books in attempt 1"
        assert notes[-1] == "books are closed"

    async def test_the_last_override_counts(self, kit: Kit) -> None:
        for name in ("a", "b"):
            kit.override(clerk, lambda name=name: name)
        kit.override(pool, lambda: "nothing")
        assert await kit.run_inline(file, 7) == "b"

    async def test_under_an_alias_too_and_in_a_pod_of_the_test(self, kit: Kit) -> None:
        kit.override(pool, lambda: "a dict")
        runtime = QueueRuntime(kit.storage, kit.handlers).with_queues("default")
        async with runtime.start() as handle:
            job_id = await enqueue_one(kit.storage, kind="file.old", payload='{"order":7}')
            assert await handle.result(job_id, timeout=50) == "clerk with session of a dict"

    async def test_the_program_itself_stays_as_it_was(
        self, kit: Kit, forge_storage: Storage
    ) -> None:
        kit.override(pool, lambda: "a dict")
        with pytest.raises(AssertionError, match="the address of production"):
            await Kit(forge_storage, handlers).run_inline(file, 7)

    async def test_what_nothing_needs_is_refused(self, kit: Kit) -> None:
        def other() -> str:
            return "other"

        with pytest.raises(InvalidInput, match="other is needed by no handler and by no lifespan"):
            kit.override(other, pool)
        with pytest.raises(InvalidInput, match=r"^replacement: is a str"):
            kit.override(pool, "pool")  # type: ignore[arg-type]

    async def test_a_replacement_that_cannot_be_made_is_refused(self, kit: Kit) -> None:
        def needy(what: str) -> str:
            return what

        with pytest.raises(RegistrationError, match="needy: what has no default"):
            kit.override(session, needy)


async def test_a_handler_of_other_processes_runs_here(kit: Kit) -> None:
    kit.override(pool, lambda: "pool")
    for number in (1, 2):
        await kit.enqueue(plain.request(number))
    assert [run.result for run in await kit.drain()] == [str(os.getpid())] * 2
    assert await kit.run_inline(plain, 3) == os.getpid()
    assert plain.in_process


def test_without_a_loop(forge_storage: Storage) -> None:
    kit = Kit(forge_storage, handlers)
    kit.override(pool, lambda: "a dict")
    assert kit.sync.run_inline(file, 7) == "clerk with session of a dict"
    kit.fake(file, returns="filed")
    kit.sync.enqueue(file.request(7))
    [run] = kit.sync.drain()
    assert (run.status, run.result) == (JobStatus.DONE, '"filed"')
    assert asyncio.run(kit.run_inline(file, 8)) == "filed"
