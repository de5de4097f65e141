"""Actors and their rights."""

from enum import StrEnum
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from forge_jobs.errors import Forbidden, InvalidInput, a_type
from forge_jobs.model.names import check_name

Surface = Literal["web", "command", "api", "code"]
"""The surface that an actor uses."""


REVEAL_JOB = "reveal_job"
"""The action that shows what is hidden from everybody else. ``*`` does not stand for this one."""


class Right(StrEnum):
    """The right that an operation needs."""

    NONE = "none"
    READ = "read"
    ACTIONS = "actions"
    QUEUES = "queues"
    PAYLOADS = "payloads"


class Access(Struct, frozen=True, kw_only=True):
    """The rights of an actor. ``Access()`` may read all but payloads, and change nothing.

    :param read: look at jobs, queues, pods, schedules and limits
    :param actions: names of the actions that are allowed, as ``{"cancel_jobs"}``. ``{"*"}`` allows
        all of them except ``reveal_job``, which has to be named. They need ``read``
    :param queues: names of the only queues that are open to the actor, with their jobs and
        schedules. None: all are. What concerns the whole installation needs None
    :param payloads: see payloads, results, metadata, log lines and the messages of errors, in
        which secret fields stay hidden. Else these texts are left out
    :raises InvalidInput: a part has a wrong type
    """

    read: bool = True
    actions: frozenset[str] = frozenset()
    queues: frozenset[str] | None = None
    payloads: bool = False

    def __post_init__(self) -> None:
        for name in ("read", "payloads"):
            if not isinstance(given := getattr(self, name), bool):
                raise InvalidInput(name, f"is {a_type(given)}", "give True or False")
        force_setattr(self, "actions", _names("actions", self.actions))
        if self.queues is not None:
            queues = _names("queues", self.queues)
            force_setattr(self, "queues", frozenset(check_name("queues", name) for name in queues))

    def allows(self, action: str) -> bool:
        """Return whether the access allows an action of the table of operations."""
        if action == REVEAL_JOB:
            return self.read and self.payloads and action in self.actions
        return self.read and ("*" in self.actions or action in self.actions)

    def has(self, right: Right) -> bool:
        """Return whether the access has a right that is no action."""
        if right is Right.NONE:
            return True
        if right is Right.QUEUES:
            return self.queues is None
        return self.read and (right is Right.READ or self.payloads)


def _names(field: str, given: object) -> frozenset[str]:
    fix = "give a set of names"
    if isinstance(given, str) or not isinstance(given, frozenset | set | tuple | list):
        raise InvalidInput(field, f"is {a_type(given)}", fix)
    for name in given:
        if not isinstance(name, str):
            raise InvalidInput(field, f"holds {a_type(name)}", fix)
    return frozenset(given)


ALL = Access(actions=frozenset({"*", REVEAL_JOB}), payloads=True)
"""The access that allows everything."""


class Actor(Struct, frozen=True, kw_only=True):
    """A person or program that operates. Name and surface are in the record of each action.

    :param name: for people, 1 to 100 characters
    :param surface: where the actor comes from: ``web``, ``command``, ``api`` or ``code``
    :param access: see :class:`Access`
    :raises InvalidInput: a part has a wrong type
    """

    name: str
    surface: Surface = "code"
    access: Access = Access()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= 100:
            raise InvalidInput("name", "is no text of 1 to 100 characters", "name who operates")
        if self.surface not in get_args(Surface):
            fix = f"give one of {', '.join(get_args(Surface))}"
            raise InvalidInput("surface", f"is {self.surface!r}", fix)
        if not isinstance(self.access, Access):
            raise InvalidInput("access", f"is {a_type(self.access)}", "give Access(...)")

    def need(self, right: Right) -> None:
        """Refuse an actor without the right.

        :raises Forbidden: names the right
        """
        if not self.access.has(right):
            raise Forbidden(self.name, right.value)

    def act(self, action: str) -> None:
        """Refuse an actor who may not take an action.

        :raises Forbidden: names the right, and the action
        """
        if not self.access.read:
            raise Forbidden(self.name, Right.READ.value)
        if not self.access.allows(action):
            raise Forbidden(self.name, Right.ACTIONS.value, action)

    def sees(self, queue: str) -> bool:
        """Return whether a queue is open to the actor."""
        return self.access.queues is None or queue in self.access.queues
