"""Routers choose the queue of a kind, when neither the request nor the handler names one."""

from collections.abc import Callable, Mapping
from typing import Protocol

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.names import check_queue

Router = Callable[[str], str | None]
"""A function from a kind to its queue. None leaves the choice to the default."""


class Elsewhere(Protocol):
    """The queues of kinds whose handler is not at hand."""

    def queue_of(self, kind: str) -> str | None:
        """The queue that pods name for the kind. None: they name none.

        :raises InvalidInput: the kind seems misspelt
        """
        ...

    def note_named(self, kind: str, queue: str) -> None:
        """Note that a request of such a kind names a queue."""
        ...

    def note_default(self, kind: str, queue: str) -> None:
        """A request of such a kind falls back to the default queue."""
        ...


def prefix_router(queues: Mapping[str, str] | None = None) -> Router:
    """Routes by how a kind begins.

    :param queues: prefix of a kind -> queue, the longest prefix wins. The prefix "" matches every
        kind. When left out, the part of the kind before its first dot is the queue:
        ``gh.sync_issue`` goes to ``gh``, and a kind without a dot nowhere
    :raises InvalidInput: a queue's name is not a name
    """
    if queues is None:
        return _before_the_dot
    longest_first = sorted(
        ((prefix, check_queue("router", queue)) for prefix, queue in queues.items()),
        key=lambda item: len(item[0]),
        reverse=True,
    )

    def route(kind: str) -> str | None:
        return next((queue for prefix, queue in longest_first if kind.startswith(prefix)), None)

    return route


def _before_the_dot(kind: str) -> str | None:
    head, dot, _ = kind.partition(".")
    return head if dot and head else None


def checked_router(router: Router) -> Router:
    """``router``, held to the promise to return None or the name of a queue.

    The router raises InvalidInput for anything else, also when the function itself raises, so
    that the caller of ``enqueue`` reads of the mistake in the terms of ``enqueue``.

    :raises InvalidInput: ``router`` is no function
    """
    if not callable(router):
        fix = "give a function of the kind, such as prefix_router()"
        raise InvalidInput("router", f"is {a_type(router)}", fix)

    def route(kind: str) -> str | None:
        try:
            queue = router(kind)
        except Exception as error:
            raise InvalidInput(
                "router",
                f"raised {type(error).__name__} for the kind {kind!r}",
                "return a queue's name, or None for no opinion",
            ) from error
        return None if queue is None else check_queue(f"router({kind!r})", queue)

    return route


def named_queues(handlers: HandlerRegistry, router: Router | None) -> dict[str, str]:
    """Per kind the queue that its handler, else the router, names. Others are left out.

    An alias goes to the queue of its kind.

    :raises InvalidInput: the router is wrong
    """
    named: dict[str, str] = {}
    for handler in handlers:
        queue = handler.options.queue or (router(handler.kind) if router is not None else None)
        if queue is not None:
            named.update(dict.fromkeys((handler.kind, *handler.aliases), queue))
    return named
