"""Hooks: which are called for which end, what they are given, and that they lose nothing."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs import (
    Again,
    Dead,
    Depends,
    Fixed,
    HandlerRegistry,
    JobContext,
    RunEnd,
    Shared,
    Snoozed,
    Throttled,
)
from forge_jobs.errors import RegistrationError
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, job_because
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

EVENTS = ("on_error", "on_retry", "on_dead", "on_done")
PAUSE = timedelta(hours=1)

notes: list[str] = []
ends: list[RunEnd] = []


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    notes.clear()
    ends.clear()


def noting(event: str, *, is_async: bool) -> Any:
    """Return a hook that notes the event, the kind, and the end."""

    def note(ctx: JobContext, end: RunEnd) -> None:
        notes.append(event)
        ends.append(end)

    async def note_on_loop(ctx: JobContext, end: RunEnd) -> None:
        await anyio.lowlevel.checkpoint()
        note(ctx, end)

    return note_on_loop if is_async else note


def all_hooks(*, is_async: bool = True) -> dict[str, Any]:
    return {event: noting(event, is_async=is_async) for event in EVENTS}


async def outcome_of(storage: Storage, handlers: HandlerRegistry, cause: Cause) -> Job:
    """Run the one job of ``handlers`` until its cause is ``cause``."""
    [handler] = handlers
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(handler.request())
        return await job_because(storage, outcome.job_id, cause)


def raises(error: BaseException | type[BaseException]) -> Any:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("is_async", [True, False], ids=["async hooks", "plain hooks"])
@pytest.mark.parametrize("in_thread", [True, False], ids=["def", "async def"])
@pytest.mark.parametrize(
    ("error", "attempts", "cause", "called"),
    [
        (None, 3, Cause.SUCCEEDED, ["on_done"]),
        (ValueError("no"), 3, Cause.FAILED, ["on_error", "on_retry"]),
        (ValueError("no"), 1, Cause.FAILED, ["on_error", "on_dead"]),
        (Dead("never"), 3, Cause.REJECTED, ["on_error", "on_dead"]),
        (Snoozed(PAUSE), 3, Cause.SNOOZED, []),
        (Throttled(3600), 3, Cause.THROTTLED, []),
        (Again(PAUSE), 3, Cause.SUCCEEDED, []),
    ],
)
async def test_the_hooks_of_an_end_are_called(
    storage: Storage,
    error: BaseException | None,
    attempts: int,
    cause: Cause,
    called: list[str],
    in_thread: bool,
    is_async: bool,
) -> None:
    handlers = HandlerRegistry()

    def work() -> None:
        if error is not None:
            raise error

    async def on_loop() -> None:
        work()

    options: dict[str, Any] = {"max_attempts": attempts, "retry": Fixed(PAUSE, jitter=False)}
    handlers.register(
        work if in_thread else on_loop, "work", **options, **all_hooks(is_async=is_async)
    )
    job = await outcome_of(storage, handlers, cause)
    assert (notes, job.errors[1:]) == (called, ())
    for end in ends:
        assert (end.status, end.cause, end.exception) == (job.status, cause, error)
        assert end.retry_in == (PAUSE if job.status is JobStatus.FAILED else None)
        assert (None if end.error is None else end.error.message) == (error and str(error))


async def test_the_registrys_come_first_and_a_list_is_called_in_order(storage: Storage) -> None:
    def named(name: str) -> Any:
        def hook() -> None:
            notes.append(name)

        return hook

    handlers = HandlerRegistry(on_error=named("a"), on_dead=[named("b"), named("c")])
    handlers.register(
        raises(ValueError), "work", max_attempts=1, on_error=[named("d")], on_dead=named("e")
    )
    await outcome_of(storage, handlers, Cause.FAILED)
    assert notes == ["a", "d", "b", "c", "e"]


async def test_a_timeout_and_a_payload_that_does_not_fit_are_errors(storage: Storage) -> None:
    handlers = HandlerRegistry(**all_hooks())

    @handlers.job("slow", timeout=0.01, max_attempts=1)
    async def slow(n: int) -> None:
        await anyio.sleep_forever()

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(slow.request(1))).job_id)
    assert (job.cause, notes) == (Cause.TIMED_OUT, ["on_error", "on_dead"])

    changed = HandlerRegistry(**all_hooks())

    @changed.job("slow", max_attempts=1)
    async def other(n: str) -> None: ...

    async with a_runtime(storage, changed).start() as handle:
        await handle.client.requeue(job.id)
        job = await job_because(storage, job.id, Cause.FAILED)
    assert (job.errors[-1].type, notes[2:]) == ("UndecodablePayload", ["on_error", "on_dead"])


async def test_the_end_is_stored_after_the_hooks(storage: Storage) -> None:
    handlers = HandlerRegistry()
    seen: list[JobStatus] = []

    async def looks(ctx: JobContext) -> None:
        seen.extend(job.status for job in (await storage.jobs.get([ctx.job_id])).values())

    @handlers.job("work", on_done=looks)
    async def work() -> None: ...

    await outcome_of(storage, handlers, Cause.SUCCEEDED)
    assert seen == [JobStatus.IN_PROGRESS]


async def test_a_retry_policy_is_asked_once(storage: Storage) -> None:
    asked: list[int] = []

    def policy(attempt: int, error: BaseException | None) -> timedelta:
        asked.append(attempt)
        return PAUSE

    handlers = HandlerRegistry()
    handlers.register(raises(ValueError), "work", retry=policy, **all_hooks())
    await outcome_of(storage, handlers, Cause.FAILED)
    assert asked == [1]
    assert [end.retry_in for end in ends] == [PAUSE, PAUSE]


# -- what is injected ------------------------------------------------------------------------------


class Pool:
    """Something that is shared."""


def session(pool: Pool = Shared(Pool)) -> Iterator[str]:
    notes.append("opens")
    yield f"session of a {type(pool).__name__}"
    notes.append("closes")


@pytest.mark.parametrize("is_async", [True, False])
async def test_parameters_are_injected_and_cleaned_up(storage: Storage, is_async: bool) -> None:
    def tells(ctx: JobContext, db: str = Depends(session), *, end: RunEnd) -> None:
        notes.append(f"{ctx.kind} {end.cause} {db}")

    async def tells_on_loop(ctx: JobContext, db: str = Depends(session), *, end: RunEnd) -> None:
        tells(ctx, db, end=end)

    handlers = HandlerRegistry(on_done=tells_on_loop if is_async else tells)
    handlers.register(lambda: None, "work")
    await outcome_of(storage, handlers, Cause.SUCCEEDED)
    assert notes == ["opens", "work succeeded session of a Pool", "closes"]


async def test_lines_of_the_handler_and_of_hooks_are_kept_in_order(storage: Storage) -> None:
    def logs(ctx: JobContext) -> None:
        ctx.log.info("from the hook")

    handlers = HandlerRegistry(on_done=logs)

    @handlers.job("work")
    async def work(ctx: JobContext) -> None:
        ctx.log.info("from the handler")

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(work.request())
        await handle.result(outcome.job_id, timeout=50)
        page = await handle.client.log(outcome.job_id)
    assert [line.text for line in page.lines] == ["from the handler", "from the hook"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_thousand_jobs_at_once(storage: Storage, is_async: bool) -> None:
    handlers = HandlerRegistry(on_done=noting("done", is_async=is_async))

    @handlers.job("work", keep_result=False)
    async def work() -> None: ...

    async with a_runtime(storage, handlers, workers=50).start() as handle:
        await handle.enqueue_many([work.request() for _ in range(1000)])

        async def are_done() -> bool:
            counts = await storage.jobs.counts(["default"])
            return counts["default"].by_status.get(JobStatus.DONE, 0) == 1000

        await wait_until(are_done, description="all are done", timeout=100)
    assert len(notes) == 1000


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (7, "on_dead is an int; give a function"),
        ([7], "on_dead is an int; give a function"),
        (session, "on_dead session yields, and a hook returns"),
        (lambda n: None, "n has no default, and nothing says what makes it; annotate it with Run"),
    ],
)
def test_wrong_hooks_are_refused_at_registration(hook: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        HandlerRegistry(on_dead=hook)
    with pytest.raises(RegistrationError, match=f"^work: .*{message}"):
        HandlerRegistry().job("work", on_dead=hook)
