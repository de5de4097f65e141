"""Runs jobs in the children of a pod, and judges how a run ended whose child has died."""

import asyncio
import sys
import types
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from forge_jobs.clients.flows.plans import Group
from forge_jobs.clients.flows.steps import Steps
from forge_jobs.errors import ConfigError, ForgeJobsError, InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest, GivenOptions
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import Cause, Claim, ErrorRecord
from forge_jobs.model.progress import NewProgress
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.reports import reporter
from forge_jobs.runtime.executors.guarded import NoProcess, ProgramEnd
from forge_jobs.runtime.executors.messages import Answer, Call, Ended, Start, packed
from forge_jobs.runtime.executors.remote import RequestMessage, StepMessage
from forge_jobs.runtime.executors.supply import Child, ChildSupply
from forge_jobs.runtime.queue.execution import is_retryable, not_started, stopped
from forge_jobs.runtime.queue.job_context import RunContext
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.storage.protocols import JobStore

logger = reporter(__name__)


class ProcessRunner:
    """Runs the handlers of one pod that have ``executor="process"``.

    :param registry: the place of the pod's registry, ``module:attribute``
    :param store: of the results and checkpoints that handlers read
    :param changed: see :class:`ChildSupply`
    """

    def __init__(
        self,
        registry: str,
        host_id: HostId,
        job_context: Callable[[Run], RunContext],
        store: JobStore,
        changed: Callable[[bool], None],
    ) -> None:
        self.children = ChildSupply(registry, host_id, self._called, changed)
        self._host_id = host_id
        self._job_context = job_context
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._runs: dict[Child, tuple[Run, RunContext]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def problem(self) -> str:
        """Return why no further child starts, else ""."""
        return self.children.problem

    async def run(self, run: Run) -> AttemptEnd | None:
        """Run the handler in a child. None: the claim was lost.

        A stop of the run reaches the handler as an exception. After the patience of the run the
        child is killed, with all processes that came from the child.
        """
        if run.stop_reason is not None:
            return not_started(run)
        try:
            with run.waiting():
                child = await self.children.take()
        except NoProcess:
            run.finish()
            return AttemptEnd(cause=Cause.RELEASED)
        except asyncio.CancelledError:
            return not_started(run)
        options = run.handler.options
        run.context = run.context or self._job_context(run)
        self._runs[child] = run, run.context
        try:
            answer = await self._answer(run, child, options.max_memory)
        finally:
            run.finish()
            del self._runs[child]
            self.children.give_back(child, options.max_runs_per_child)
        if run.stop_reason is StopReason.LOST:
            return None
        if isinstance(answer, Ended):
            return answer.as_end()
        return self._died(run, answer)

    async def close(self) -> None:
        """End all children."""
        await self.children.close()

    async def _answer(self, run: Run, child: Child, max_memory: int | None) -> Ended | ProgramEnd:
        answer = child.run(Start(run.job, run.worker_id), max_memory)
        run.kill = child.kill
        run.begin(asyncio.current_task())
        interrupted = False
        killed: asyncio.TimerHandle | None = None
        try:
            while not answer.done():
                try:
                    await asyncio.shield(answer)
                except asyncio.CancelledError:
                    if interrupted:
                        child.kill()
                        continue
                    interrupted = True
                    if run.stop_reason is None:
                        # By the program, which cancels tasks of the event loop.
                        run.stop_reason = StopReason.SHUTDOWN
                        killed = self._loop.call_later(run.patience, child.kill)
                    child.interrupt(run.stop_reason)
        finally:
            if killed is not None:
                # The child may run another job by then.
                killed.cancel()
        return answer.result()

    def _died(self, run: Run, end: ProgramEnd) -> AttemptEnd:
        """Return the end of a run whose child has died."""
        if run.stop_reason is not None:
            return stopped(run, self._host_id, asyncio.CancelledError(), run.stop_reason)
        if end.memory:
            used, most = end.memory, run.handler.options.max_memory or 0
            text = f"the handler used {_mib(used)} of memory, max_memory is {_mib(most)}"
            record = self._record(run, Cause.FAILED, "MemoryError", text)
            retryable = is_retryable(run, MemoryError())
            return AttemptEnd(
                cause=Cause.FAILED, error=record, retryable=retryable, exception=MemoryError(text)
            )
        text = f"the process of the handler {end} while the job ran"
        return AttemptEnd(
            cause=Cause.CRASHED, error=self._record(run, Cause.CRASHED, "Crashed", text)
        )

    def _record(self, run: Run, cause: Cause, kind: str, text: str) -> ErrorRecord:
        return ErrorRecord(
            attempt=run.job.attempt, cause=cause, type=kind, message=text, host_id=self._host_id
        )

    # -- calls of the context ----------------------------------------------------------------

    def _called(self, child: Child, call: Call) -> None:
        if child not in self._runs:
            return
        run, context = self._runs[child]
        if call.verb in _NOTES:
            _NOTES[call.verb](context, call.arguments)
            return
        task = self._loop.create_task(self._make(child, run, context, call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _make(self, child: Child, run: Run, context: RunContext, call: Call) -> None:
        try:
            value = await self._value(run, context, call)
            answer = Answer(call.number, packed(value))
        except InvalidInput as error:
            fields = error.field, error.problem, error.fix
            answer = Answer(call.number, packed(None), type(error).__name__, fields)
        except ForgeJobsError as error:
            answer = Answer(call.number, packed(None), type(error).__name__, (str(error),))
        except Exception as error:
            logger.exception(
                "job %s: its process called ctx.%s, which failed; the handler gets the error",
                run.job.claim.job_id,
                call.verb,
            )
            text = f"{type(error).__name__}: {error}"
            answer = Answer(call.number, packed(None), "ForgeJobsError", (text,))
        if call.number:
            child.send(answer)

    async def _value(self, run: Run, context: RunContext, call: Call) -> Any:
        if kind := _OF_THE_STORE.get(call.verb):
            arguments = msgspec.msgpack.decode(call.arguments, type=kind)
            return await getattr(self._store, call.verb)(*arguments)
        return await _VERBS[call.verb](context, run, call.arguments)


def _progress(context: RunContext, arguments: msgspec.Raw) -> None:
    (progress,) = msgspec.msgpack.decode(arguments, type=tuple[NewProgress])
    context.notes().set_progress(progress)


def _line(context: RunContext, arguments: msgspec.Raw) -> None:
    level, text = msgspec.msgpack.decode(arguments, type=tuple[int, str])
    context.keep_line(level, text)


_NOTES = {"progress": _progress, "line": _line}
_OF_THE_STORE: dict[str, Any] = {
    "parents": tuple[list[JobId]],
    "get": tuple[list[JobId]],
    "checkpoint": tuple[JobId],
    "save_checkpoint": tuple[Claim, str],
}
"""Methods of the store, and the types of their arguments."""


async def _extend(_: RunContext, run: Run, arguments: msgspec.Raw) -> None:
    (seconds,) = msgspec.msgpack.decode(arguments, type=tuple[float])
    run.extend(seconds)


async def _enqueue(context: RunContext, _: Run, arguments: msgspec.Raw) -> Any:
    (message,) = msgspec.msgpack.decode(arguments, type=tuple[RequestMessage])
    return await context.enqueue(_request(message))


async def _enqueue_many(context: RunContext, _: Run, arguments: msgspec.Raw) -> Any:
    (messages,) = msgspec.msgpack.decode(arguments, type=tuple[list[RequestMessage]])
    return await context.enqueue_many([_request(each) for each in messages])


async def _add_steps(context: RunContext, _: Run, arguments: msgspec.Raw) -> Any:
    (messages,) = msgspec.msgpack.decode(arguments, type=tuple[list[StepMessage]])
    steps = Steps()
    for each in messages:
        jobs = [_request(job) for job in each.jobs]
        if each.group is None:
            steps.step(each.name, jobs[0], after=each.after)
        else:
            queue, tags = each.group
            steps.step(each.name, Group(jobs, queue=queue, tags=tags), after=each.after)
    return await context.add_steps(steps)


async def _acquire(context: RunContext, run: Run, arguments: msgspec.Raw) -> bool:
    kind = tuple[str, int, timedelta | float | None]
    scope, count, wait = msgspec.msgpack.decode(arguments, type=kind)
    return await context.rate_limit.acquire(scope, count, wait=wait)


async def _drain(context: RunContext, _: Run, arguments: msgspec.Raw) -> None:
    (scope,) = msgspec.msgpack.decode(arguments, type=tuple[str])
    await context.rate_limit.drain(scope)


_VERBS = {
    "extend": _extend,
    "enqueue": _enqueue,
    "enqueue_many": _enqueue_many,
    "add_steps": _add_steps,
    "acquire": _acquire,
    "drain": _drain,
}


def _request(message: RequestMessage) -> EnqueueRequest:
    try:
        options = msgspec.convert(message.options, GivenOptions)
    except msgspec.ValidationError as error:
        raise InvalidInput("options", str(error), "see the options of enqueue") from None
    given = {name: getattr(options, name) for name in options.__struct_fields__}
    return EnqueueRequest(message.kind, message.payload, **given)


def registry_place(registry: HandlerRegistry) -> str:
    """Return where another process can import this registry, as ``module:attribute``.

    :raises ConfigError: at no place
    """
    if registry.loaded_from:
        return registry.loaded_from
    for module in tuple(sys.modules.values()):
        name = _importable_name(module)
        for attribute, value in tuple(getattr(module, "__dict__", {}).items()):
            if value is registry and name:
                return f"{name}:{attribute}"
    raise ConfigError(
        'handlers with executor="process" run in other processes, which import the registry: '
        "assign the HandlerRegistry to a name at the top level of a module that can be imported, "
        "not in a function and not in a script"
    )


def _importable_name(module: types.ModuleType) -> str:
    """Return the name under which a new process imports ``module``, "" for a script."""
    name: str = getattr(module, "__name__", "")
    if name != "__main__":
        return name
    spec = getattr(module, "__spec__", None)
    return spec.name if spec is not None else ""


def _mib(number: int) -> str:
    return f"{number / 2**20:.0f} MiB"
