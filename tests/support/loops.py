"""The kinds of event loops that programs have: ``FORGE_TEST_LOOP`` names the one of the tests."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def _as_if_eager(
    loop: Any, work: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None
) -> "asyncio.Future[Any]":
    """Make a task that takes its first step at once, as ``asyncio.eager_task_factory`` does.

    Python 3.11 has no such tasks. The task of asyncio that is written in Python leaves its first
    step at the end of the loop's queue.
    """
    tasks: Any = asyncio.tasks
    running: Any = asyncio._get_running_loop()
    task: asyncio.Future[Any] = tasks._PyTask(work, loop=loop, name=name, context=context)
    if running is not loop:
        return task
    first_step = loop._ready.pop()
    outer = asyncio.current_task()
    if outer is not None:
        tasks._leave_task(loop, outer)
    try:
        first_step._run()
    finally:
        if outer is not None:
            tasks._enter_task(loop, outer)
    return task


def eager_tasks() -> Any:
    """Return a factory of eager tasks: that of Python, from 3.12 on."""
    return getattr(asyncio, "eager_task_factory", _as_if_eager)


def _eager(make: LoopFactory) -> LoopFactory:
    def make_eager() -> asyncio.AbstractEventLoop:
        loop = make()
        loop.set_task_factory(eager_tasks())
        return loop

    return make_eager


LOOPS: dict[str, LoopFactory] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "eager": _eager(asyncio.new_event_loop),
    # From Python 3.12 on.
    "eager-uvloop": _eager(uvloop.new_event_loop),
}
