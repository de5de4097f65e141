"""Values that live as long as a pod: what ``Shared`` makes, and the lifespans of the registry.

Each value has a task that makes the value, waits, and cleans up: a context manager is left by the
task that entered it, which scopes and task groups of anyio ask for.
"""

import asyncio
import contextvars
import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from forge_jobs.errors import LifespanFailed, a_type
from forge_jobs.handlers.injection.opened import Opened
from forge_jobs.handlers.injection.plan import SharedPlan
from forge_jobs.handlers.injection.values import OF_THE_JOB
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.runtime.shared.threads import HandlerThread, ThreadEnd

logger = reporter(__name__)

T = TypeVar("T")

_LOOK_EVERY = 0.05
_TO_REACT = 0.3
"""Seconds that a clean-up has after the cancellation."""


class PodValues:
    """The values of one pod that all jobs share. For one event loop.

    :param client: the client of the pod
    :ivar state: what the lifespans have yielded, for ``ctx.state``
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.state: Mapping[str, Any] = MappingProxyType({})
        self._variables = contextvars.copy_context()
        self._holders: dict[Hashable, _Holder] = {}
        self._made: list[_Holder] = []
        self._is_closing = False

    @property
    def stuck(self) -> tuple[str, ...]:
        """Return the names of the values whose clean-up was given up and still goes on."""
        return tuple(holder.name for holder in self._made if not holder.task.done())

    async def open(self, lifespans: Sequence[SharedPlan]) -> None:
        """Enter the lifespans, one after another.

        :raises LifespanFailed: one of them raised. Those before are left again
        """
        state: dict[str, Any] = {}
        for plan in lifespans:
            try:
                state |= _state_of(await self.get(plan), state)
            except Exception as error:
                raise LifespanFailed(
                    f"the lifespan {plan.name} failed, so the worker does not start: "
                    f"{type(error).__name__}: {error}"
                ) from error
        self.state = MappingProxyType(state)

    async def get(self, plan: SharedPlan) -> Any:
        """Return the value of ``plan``, made now if this is the first call.

        All who ask meanwhile get the same value, or each a copy of the same exception. After an
        exception the next call makes the value again.
        """
        holder = self._holders.get(plan.key)
        if holder is None:
            if self._is_closing:
                raise RuntimeError(
                    f"{plan.name} is asked for, but this pod is stopping and has closed its shared "
                    "values"
                )
            holder = self._holders[plan.key] = _Holder(plan, self)
            # Not before the holder is known: an eager task may end in this very call.
            holder.begin()
        if not holder.made.done():
            await asyncio.wait([holder.made])
        value, error = holder.made.result()
        if error is not None:
            raise _copy_of(error).with_traceback(holder.frames)
        return value

    def has_made(self, holder: "_Holder") -> None:
        """Note that a value is made. Values are left in the opposite order."""
        self._made.append(holder)

    def could_not_make(self, holder: "_Holder") -> None:
        """Forget a value that could not be made, so that the next call tries again."""
        self._holders.pop(holder.plan.key, None)

    def variables(self) -> contextvars.Context:
        """Return the context variables for a value: those of the program, and of no job."""
        return self._variables.copy()

    async def close(self, until: Callable[[], float]) -> None:
        """Leave all values, the newest first. May be called again, and goes on then.

        What has not ended in time is cancelled, and then left behind: see :attr:`stuck`.

        :param until: returns the end of the time, of the event loop's clock
        """
        self._is_closing = True
        for holder in list(self._holders.values()):
            if not holder.made.done():
                holder.task.cancel()
        for holder in (*reversed(self._made), *self._holders.values()):
            holder.leave()
            await _ends(holder, until)
        late = [holder for holder in self._holders.values() if not holder.task.done()]
        for holder in late:
            logger.error(
                "the clean-up of %s has not ended in the time of the stop and is cancelled",
                holder.name,
            )
            holder.cancel()
        at = asyncio.get_running_loop().time() + _TO_REACT
        for holder in late:
            await _ends(holder, lambda: at)


async def _ends(holder: "_Holder", until: Callable[[], float]) -> None:
    """Wait for the end of a value until the time is over, and for a moment in any case."""
    loop = asyncio.get_running_loop()
    while not holder.task.done():
        await asyncio.wait([holder.task], timeout=_LOOK_EVERY)
        if until() <= loop.time():
            return


class _Holder:
    """Holds one value in a task of its own.

    :ivar task: of the value, from :meth:`begin` on
    :ivar made: the value, or the exception of the making
    :ivar frames: the traceback of that exception
    """

    def __init__(self, plan: SharedPlan, values: PodValues) -> None:
        self.plan = plan
        self.name = plan.name
        self.made: asyncio.Future[tuple[Any, BaseException | None]] = (
            asyncio.get_running_loop().create_future()
        )
        self.frames: Any = None
        self._values = values
        self._left = Wakeup()
        self._is_left = False
        self._thread_end: ThreadEnd | None = None

    def begin(self) -> None:
        """Begin to make the value."""
        self.task = asyncio.get_running_loop().create_task(
            self._hold(), name=f"forge-jobs {self.name}", context=self._values.variables()
        )

    def leave(self) -> None:
        """Begin the clean-up."""
        self._is_left = True
        self._left.wake()

    def cancel(self) -> None:
        """Cut the clean-up short. A thread that is at work goes on alone."""
        if self._thread_end is not None:
            self._thread_end.leave()
        self.task.cancel()

    async def _hold(self) -> None:
        opened = Opened(self._in_thread, self._clean_up_failed)
        try:
            value = await self._make(opened)
        except BaseException as raised:  # all who wait for the value get the exception
            error = await opened.close(raised)
            assert error is not None
            self.frames = error.__traceback__
            self._values.could_not_make(self)
            self.made.set_result((None, error))
            return
        self._values.has_made(self)
        self.made.set_result((value, None))
        await self._until_left()
        await opened.close(None)

    async def _make(self, opened: Opened) -> Any:
        values: list[Any] = []
        for step in self.plan.steps:
            if step.value is not None:
                values.append(OF_THE_JOB[step.value](self._values))
            elif step.shared is not None:
                values.append(await self._values.get(step.shared))
            else:
                assert step.factory is not None
                arguments = {parameter: values[number] for parameter, number in step.needs}
                values.append(await opened.make(step.name, step.factory, arguments))
        return values[-1]

    async def _until_left(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not self._is_left:
            try:
                await self._left.wait()
            except asyncio.CancelledError:
                # The program cancels all tasks of the event loop. Handlers may still need the
                # value, and the stop of the pod follows.
                task.uncancel()

    async def _in_thread(self, call: Callable[[], T], /) -> T:
        thread = HandlerThread(f"forge-jobs-{self.name}")
        try:
            self._thread_end = end = thread.call(call, self._values.variables())
            try:
                value, error = await end
            except asyncio.CancelledError:
                if end.cancelled():
                    raise
                value, error = end.result()  # the thread has ended all the same
        finally:
            thread.close()
        if error is not None:
            raise error
        made: T = value
        return made

    def _clean_up_failed(
        self, name: str, raised: BaseException, error: BaseException | None
    ) -> BaseException | None:
        logger.error(
            "the clean-up of %s failed: %s: %s",
            name,
            type(raised).__name__,
            raised,
            exc_info=raised if isinstance(raised, Exception) else None,
        )
        return error or raised


def _copy_of(error: BaseException) -> BaseException:
    """Return an exception for one of many jobs, which add notes and frames of their own."""
    try:
        copied = copy.copy(error)
    except Exception:  # the class of the program may take other arguments than it keeps
        return error
    if type(copied) is not type(error):
        return error
    if hasattr(error, "__notes__"):
        copied.__notes__ = [*error.__notes__]
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied


def _state_of(value: object, so_far: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a lifespan has yielded.

    :raises TypeError: neither nothing nor a mapping
    :raises ValueError: another lifespan has yielded one of the names
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"it yields {a_type(value)}; yield a mapping for ctx.state, or nothing")
    if taken := value.keys() & so_far.keys():
        raise ValueError(f"another lifespan has yielded {min(taken)!r} already; choose other names")
    return value
