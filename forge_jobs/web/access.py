"""The caller of a request, as the host application or the sign-in names one."""

from collections.abc import Awaitable, Callable

from msgspec import structs
from starlette.requests import Request

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.operating.access import Access, Actor

Caller = Actor | Access
"""The caller with a name, or only the rights of the caller."""

Authorize = Callable[[Request], Caller | Awaitable[Caller | None] | None]
"""Tells who calls. None refuses the request."""

_NAMELESS = "dashboard"


def actor_of(given: object) -> Actor | None:
    """Return the actor of what an application answered.

    :raises InvalidInput: the answer is something else
    """
    if given is None:
        return None
    if isinstance(given, Access):
        return Actor(name=_NAMELESS, surface="web", access=given)
    if isinstance(given, Actor):
        return structs.replace(given, surface="web")
    raise InvalidInput("authorize", f"returned {a_type(given)}", "return an Actor, Access or None")
