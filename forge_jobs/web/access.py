"""The rights of a person or program that calls the dashboard."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request

from forge_jobs.operating import access as operating

ALL = frozenset({"*"})
"""The actions of an operator who may do everything."""


class Access(operating.Access, frozen=True, kw_only=True):
    """The rights of one caller, who is named in every record of an action.

    :param actor: the name of the person or program
    """

    actor: str

    def as_actor(self, surface: operating.Surface) -> operating.Actor:
        """The caller as an operator's actor."""
        return operating.Actor(name=self.actor, surface=surface, access=self)

    def allows(self, action: str, queue: str | None = None) -> bool:
        """Return whether the caller may take an action, on a queue where one is named."""
        return super().allows(action) and self.sees(queue)

    def sees(self, queue: str | None) -> bool:
        """Return whether the caller may see a queue. None stands for no queue in particular."""
        return self.read and (queue is None or self.queues is None or queue in self.queues)

    @property
    def in_words(self) -> str:
        """The rights as the frame of a page shows them."""
        if not self.read:
            return "nothing"
        may = "all actions" if "*" in self.actions else ", ".join(sorted(self.actions))
        return may or "read only"


Authorize = Callable[[Request], Access | Awaitable[Access | None] | None]
"""Tells the rights of the caller of a request. None refuses the request."""
