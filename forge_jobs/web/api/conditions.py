"""``If-Match``: a change that is refused where another caller was first."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from starlette.datastructures import Headers

from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.documents import tag_of
from forge_jobs.web.problems import Refused

HEADER = "If-Match"


class Conditions:
    """Holds conditional changes of one dashboard apart: of those that saw one state, one goes well.

    Two processes may read the same state within the few milliseconds before either has written.
    """

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def enter(
        self,
        stack: AsyncExitStack,
        operator: Operator,
        operation: str,
        name: str,
        headers: Headers,
    ) -> None:
        """Check the condition of a request, and keep others out until the stack ends.

        :raises Refused: 412, the thing is not as the caller has seen it. 400, no condition is
            possible
        """
        given = headers.get(HEADER)
        if given is None:
            return
        tag_of = TAGS.get(operation)
        if tag_of is None:
            raise Refused(
                400, "no-condition", "the operation takes no condition", "leave the header out",
                field=HEADER,
            )  # fmt: skip
        operator.actor.act(operation)
        await stack.enter_async_context(self._one_at_a_time)
        tag = await tag_of(operator, name)
        known = [each.strip() for each in given.split(",")]
        if tag is None or (known != ["*"] and f'"{tag}"' not in known):
            raise Refused(
                412,
                "changed-meanwhile",
                f"{name[:100]!r} is not as it was when you read it",
                "read the newest state, then decide again",
                field=HEADER,
            )


async def queue_tag(operator: Operator, name: str) -> str | None:
    """Return the tag of a queue's settings. None: there is no such queue for the caller."""
    if not operator.actor.sees(name):
        return None
    states = {each.name: each for each in await operator.storage.config.queues()}
    return tag_of(states[name].settings) if name in states else None


async def schedule_tag(operator: Operator, name: str) -> str | None:
    """Return the tag of a schedule. None: there is no such schedule for the caller."""
    found = {each.spec.name: each for each in (await operator.list_schedules()).schedules}
    return found[name].etag if name in found else None


TAGS: Mapping[str, Callable[[Operator, str], Awaitable[str | None]]] = {
    "set_queue": queue_tag,
    "set_schedule": schedule_tag,
}
"""Operations that take a condition, by the part that they change."""
