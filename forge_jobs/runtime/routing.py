"""Which queue a kind goes to, when neither the request nor the handler says so."""

from collections.abc import Iterable, Mapping

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.preparing import DEFAULT_QUEUE, Router
from forge_jobs.model.names import check_name

__all__ = ["Router", "checked_router", "default_router", "prefix_router", "queue_for"]


def default_router(declared: Iterable[str]) -> Router:
    """Routes ``gh.sync_issue`` to ``gh`` when ``gh`` is one of ``declared``, else nowhere.

    :param declared: the queues this process knows
    """
    queues = frozenset(declared)

    def route(kind: str) -> str | None:
        head, dot, _ = kind.partition(".")
        return head if dot and head in queues else None

    return route


def prefix_router(queues: Mapping[str, str]) -> Router:
    """Routes by the longest prefix of the kind that ``queues`` holds, else nowhere.

    :param queues: prefix of a kind -> queue; the prefix "" matches every kind
    :raises InvalidInput: a queue's name is not a name
    """
    longest_first = sorted(
        ((prefix, check_name("router", queue)) for prefix, queue in queues.items()),
        key=lambda item: len(item[0]),
        reverse=True,
    )

    def route(kind: str) -> str | None:
        return next((queue for prefix, queue in longest_first if kind.startswith(prefix)), None)

    return route


def checked_router(router: Router) -> Router:
    """``router``, held to its promise: what it returns is None or the name of a queue.

    The router raises InvalidInput for anything else, also when the function itself raises, so
    that a mistake in it is told to the caller of ``enqueue`` in the terms of ``enqueue``.
    """

    def route(kind: str) -> str | None:
        try:
            queue = router(kind)
        except Exception as error:
            raise InvalidInput(
                "router",
                f"raised {type(error).__name__} for the kind {kind!r}",
                "return a queue's name, or None for no opinion",
            ) from error
        return None if queue is None else check_name(f"router({kind!r})", queue)

    return route


def queue_for(kind: str, router: Router) -> str:
    """The queue of a kind by ``router``, ``default`` when it has no opinion."""
    return checked_router(router)(kind) or DEFAULT_QUEUE
