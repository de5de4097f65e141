"""Named places where a test pauses, kills or fails a process.

A test of crashes that kills at a random moment seldom hits the moment that matters. A stop point
has a name and stands at such a moment, for example between the commit and the arrival of a claim.
Product code arms no point. An unarmed point costs a look at an empty dict.
"""

from collections.abc import Awaitable, Callable

Action = Callable[[], Awaitable[None] | None]

STOP_POINTS = frozenset(
    {
        "enqueue:before",
        "enqueue:committed",
        "claim:before",
        "claim:committed",
        "run:start",
        "run:end",
        "finalize:before",
        "finalize:committed",
        "beat:before",
        "beat:committed",
        "reap:read",
        "reap:committed",
        "slots:planned",
        "slots:granted",
        "cron:read",
        "cron:committed",
        "handover:read",
        "handover:committed",
        "letters:read",
        "letters:stored",
        "letters:committed",
        "outbox:read",
        "outbox:stored",
        "outbox:committed",
        "actions:before",
        "actions:committed",
        "requests:read",
        "actions:recorded",
        "actions:changed",
        "stop:drained",
        "stop:leaving",
        "migrate:step",
    }
)
"""``before``: the store has not been asked. ``read``: the store has answered, and the write that
rests on the answer has not begun. ``committed``: the store has taken the write, and the process has
not seen that yet. ``actions:recorded`` is before a change of one value, ``actions:changed`` after
that and before the record says so. ``run:start`` and ``run:end`` are before and after a handler.
``stop:drained`` is after the last handler of a stop, ``stop:leaving`` before the pod is
unregistered. ``migrate:step`` is within transaction of a migration, after one of its statements."""

ARMED: dict[str, Action] = {}
"""Point -> action. Look here before calling :func:`reach`."""


def arm(name: str, action: Action) -> None:
    """Let ``action`` run whenever a task or thread of this process reaches the point.

    :param action: an exception of the action is raised at the point. A returned awaitable is
        awaited there. At ``migrate:step``, which is in a thread, the action must return None
    :raises ValueError: no point has this name
    """
    if name not in STOP_POINTS:
        raise ValueError(f"{name!r} is no stop point; known are {', '.join(sorted(STOP_POINTS))}")
    ARMED[name] = action


def disarm() -> None:
    """Arm no point any more."""
    ARMED.clear()


async def reach(name: str) -> None:
    """Do what the point is armed with."""
    waiting = reach_now(name)
    if waiting is not None:
        await waiting


def reach_now(name: str) -> Awaitable[None] | None:
    """As :func:`reach`, where nothing can be awaited."""
    action = ARMED.get(name)
    return None if action is None else action()
