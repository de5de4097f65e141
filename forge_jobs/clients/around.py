"""Enqueues with middleware around them: the parts before, the store, the parts behind."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import UNSET

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.options import AroundEnqueue, HandlerOptions
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import is_seed_id
from forge_jobs.model.jobs import EnqueueOutcome
from forge_jobs.reports import reporter

logger = reporter(__name__)

T = TypeVar("T")

StoreRequests = Callable[[Sequence[EnqueueRequest], list[EnqueueOutcome]], Awaitable[None]]
"""Stores the requests, and adds their outcomes to the list step by step."""

_Generator = Generator[Any, Any, Any] | AsyncGenerator[Any, Any]


class OnLoop(Protocol):
    """Awaits a step of an asynchronous middleware."""

    async def __call__(self, step: Callable[[], Awaitable[T]], /) -> T: ...


def options_of(request: EnqueueRequest, registry: HandlerRegistry | None) -> HandlerOptions | None:
    """Return the options of the handler of a request, and of the registry for an unknown kind."""
    if request.handler_options is not None or registry is None:
        return request.handler_options
    handler = registry.get(request.kind) if isinstance(request.kind, str) else None
    return registry.options_elsewhere if handler is None else handler.options


def all_options_of(
    requests: Sequence[EnqueueRequest], registry: HandlerRegistry | None
) -> list[HandlerOptions | None] | None:
    """Return the options for each request. None: there is no middleware around any of them.

    What is no request has no options, and is refused later.
    """
    if registry is None or not registry.has_enqueue_middleware:
        # Requests of handlers of another registry may bring theirs.
        for each in requests:
            own = each.handler_options if isinstance(each, EnqueueRequest) else None
            if own is not None and own.enqueue_middleware:
                break
        else:
            return None
    found = [
        options_of(each, registry) if isinstance(each, EnqueueRequest) else None
        for each in requests
    ]
    return found if any(each is not None and each.enqueue_middleware for each in found) else None


async def _directly(step: Callable[[], Awaitable[T]]) -> T:
    return await step()


async def enqueued_within(
    options: Sequence[HandlerOptions | None],
    requests: Sequence[EnqueueRequest],
    store: StoreRequests,
    on_loop: OnLoop = _directly,
) -> list[EnqueueOutcome]:
    """Run the parts before the yields, store what they have made of the requests, run the rest.

    An exception of a part before the yield, or of ``store``, reaches all middleware that has begun
    and then the caller. An exception behind a yield is logged and changes nothing, because the job
    is stored.

    :param options: for each request, see :func:`all_options_of`
    """
    opened: list[tuple[int, AroundEnqueue, _Generator]] = []
    wanted = list(requests)
    outcomes: list[EnqueueOutcome] = []
    error: BaseException | None = None
    try:
        for number, own in enumerate(options):
            for each in () if own is None else own.enqueue_middleware:
                generator: _Generator = each.function(wanted[number])
                wanted[number] = await _begun(each, generator, wanted[number], on_loop)
                opened.append((number, each, generator))
        await store(wanted, outcomes)
    except GeneratorExit:
        raise  # the event loop is gone, and nothing can be awaited any more
    except BaseException as raised:  # whatever it is, those that have begun learn of it
        error = raised
    try:
        for number, each, generator in reversed(opened):
            outcome = outcomes[number] if number < len(outcomes) else None
            try:
                error = await _ended(generator, outcome, error, on_loop)
            except Exception as raised:
                if raised is not error:
                    _log(each, wanted[number].kind, raised, options[number])
        if error is not None:
            raise error
    finally:
        error = None  # an exception must not hold the frame that holds the exception
    return outcomes


async def _begun(
    each: AroundEnqueue, generator: _Generator, request: EnqueueRequest, on_loop: OnLoop
) -> EnqueueRequest:
    """Return the request that the middleware yields."""
    try:
        if isinstance(generator, AsyncGenerator):
            changed = await on_loop(generator.__anext__)
        else:
            changed = next(generator)
    except (StopIteration, StopAsyncIteration):
        fix = "yield once in every case; to refuse a job raise an exception"
        raise InvalidInput(
            "request", f"was not yielded by the enqueue_middleware {each.name}", fix
        ) from None
    if changed is None:
        return request
    if not isinstance(changed, EnqueueRequest):
        problem = f"is {a_type(changed)}, as the enqueue_middleware {each.name} has yielded it"
        fix = "yield the request, or nothing to leave it as it is"
        raise InvalidInput("request", problem, fix)
    if changed.kind != request.kind:
        problem = f"was {request.kind!r}, and the enqueue_middleware {each.name} has made it "
        fix = "change other fields only; to refuse a job raise an exception"
        raise InvalidInput("kind", f"{problem}{changed.kind!r}", fix)
    if request.id is not None and is_seed_id(request.id):
        _check_seed(each, request, changed)
    return changed


_OF_SEEDS = ("id", "queue", "unique", "unique_key", "after")


def _check_seed(each: AroundEnqueue, request: EnqueueRequest, changed: EnqueueRequest) -> None:
    """Check that a seeded job stays the one that each pod looks for, and stays where it is."""
    for name in _OF_SEEDS:
        before, after = getattr(request, name), getattr(changed, name)
        if before != after:
            was = "not set" if before in (None, UNSET, ()) else repr(before)
            raise InvalidInput(
                name,
                f"of the seeded job of kind {request.kind!r} was {was}, and the enqueue_middleware "
                f"{each.name} has made it {after!r}",
                f"leave the request as it is where request.id is {request.id}; a seeded job has "
                "the queue of its handler, and no key",
            )


async def _ended(
    generator: _Generator,
    outcome: EnqueueOutcome | None,
    error: BaseException | None,
    on_loop: OnLoop,
) -> BaseException | None:
    """Give the middleware the outcome, or else the error. Return the error that stands.

    :raises Exception: as the middleware
    """
    known = error or RuntimeError("the store gave no outcome")
    try:
        if isinstance(generator, AsyncGenerator):
            if outcome is None:
                await on_loop(lambda: generator.athrow(known))
            else:
                await on_loop(lambda: generator.asend(outcome))
            await on_loop(generator.aclose)
        else:
            if outcome is None:
                generator.throw(known)
            else:
                generator.send(outcome)
            generator.close()
    except (StopIteration, StopAsyncIteration):
        return error
    except (Exception, GeneratorExit):
        raise
    except BaseException as raised:  # the caller is cancelled
        return raised
    raise RuntimeError("the function yields a second time")


def _log(each: AroundEnqueue, kind: str, raised: Exception, options: HandlerOptions | None) -> None:
    # The text of an exception may hold a secret of the payload.
    is_shown = options is None or not options.secrets
    logger.error(
        "the enqueue_middleware %s failed after the enqueue of a job of kind %s, which stands: %s",
        each.name,
        kind,
        type(raised).__name__,
        exc_info=raised if is_shown else None,
        extra={"kind": kind},
    )
