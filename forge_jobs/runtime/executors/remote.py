"""The pod, as a handler in a child reaches it: calls of the context that cross to the pod."""

import asyncio
import concurrent.futures
import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, Unpack

import msgspec

from forge_jobs import errors
from forge_jobs.clients.flows.plans import Group
from forge_jobs.clients.flows.steps import OnFailure, Steps
from forge_jobs.clients.results import with_type, with_types
from forge_jobs.errors import ForgeJobsError, InvalidInput
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest, GivenOptions
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim, ClaimedJob, EnqueueOutcome, Job
from forge_jobs.model.payloads import encode_json
from forge_jobs.model.progress import LINE_BYTES, NewProgress
from forge_jobs.privacy.secrets import without
from forge_jobs.runtime.executors.messages import Answer, Call, FromChild, frame, packed
from forge_jobs.runtime.executors.sending import FrameSender, OwnSocket
from forge_jobs.runtime.shared.clean_texts import clean_text

R = TypeVar("R")

_ANY_TIME = datetime.fromtimestamp(0, UTC)


class RequestMessage(msgspec.Struct, frozen=True):
    """An :class:`EnqueueRequest` on the way to the pod.

    :param options: those that were given
    """

    kind: str
    payload: str
    options: dict[str, Any]


class StepMessage(msgspec.Struct, frozen=True):
    """A step on the way to the pod.

    :param group: queue and tags of a step that is a group, None of one that is a job
    """

    name: str
    after: dict[str, OnFailure]
    jobs: list[RequestMessage]
    group: tuple[str | None, list[str]] | None = None


class Pod:
    """The connection to the pod. Any thread may use the methods."""

    def __init__(self, connection: OwnSocket) -> None:
        self._sender = FrameSender(connection)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, concurrent.futures.Future[msgspec.Raw]] = {}

    def send(self, message: FromChild) -> None:
        """Send a message. Waits while the pod is behind with reading.

        :raises OSError: the pod is gone
        :raises Elsewhere: this is a process that the handler has forked
        """
        self._sender.send(frame(message))

    def tell(self, verb: str, *arguments: object) -> None:
        """Call without an answer."""
        self.send(Call(0, verb, packed(arguments)))

    async def ask(self, verb: str, *arguments: object) -> msgspec.Raw:
        """Call, and return the answer.

        :raises ForgeJobsError: as the call raised in the pod
        """
        number = next(self._numbers)
        future: concurrent.futures.Future[msgspec.Raw] = concurrent.futures.Future()
        self._waiting[number] = future
        try:
            self.send(Call(number, verb, packed(arguments)))
            return await asyncio.wrap_future(future)
        finally:
            self._waiting.pop(number, None)

    def answered(self, answer: Answer) -> None:
        """Take an answer of the pod."""
        future = self._waiting.get(answer.number)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if not answer.error:
            future.set_result(answer.value)
            return
        kind = getattr(errors, answer.error, None)
        try:
            error = kind(*answer.arguments) if kind is not None else None
        except TypeError:
            error = None
        future.set_exception(error or ForgeJobsError(": ".join(answer.arguments)))


class PodClient:
    """The client of the pod, for ``ctx.enqueue``."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    async def enqueue(
        self, request: EnqueueRequest[R], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[R]:
        """Enqueue as the client of the pod does."""
        answer = await self._pod.ask("enqueue", _message(request.options(**options)))
        return with_type(request, msgspec.msgpack.decode(answer, type=EnqueueOutcome))

    async def enqueue_many(self, requests: Iterable[EnqueueRequest[R]]) -> list[EnqueueOutcome[R]]:
        """Enqueue as the client of the pod does."""
        wanted = list(requests)
        answer = await self._pod.ask("enqueue_many", [_message(each) for each in wanted])
        return with_types(wanted, msgspec.msgpack.decode(answer, type=list[EnqueueOutcome]))

    async def add_steps(self, _: str, steps: Steps) -> dict[str, EnqueueOutcome[Any]]:
        """Add steps as the context in the pod does, which knows the workflow."""
        messages = []
        for name, wanted in steps.requests.items():
            after = dict(steps.after[name])
            if isinstance(wanted, Group):
                jobs = [_message(each) for each in wanted.requests]
                place = (wanted.queue, list(wanted.tags))
                messages.append(StepMessage(name, after, jobs, place))
            else:
                messages.append(StepMessage(name, after, [_message(wanted)]))
        answer = await self._pod.ask("add_steps", messages)
        return msgspec.msgpack.decode(answer, type=dict[str, EnqueueOutcome])


class PodLimits:
    """The rate limits of the pod."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    async def acquire(
        self, scope: str, count: int = 1, *, wait: timedelta | float | None = None
    ) -> bool:
        """Acquire tokens as the pod does."""
        answer = await self._pod.ask("acquire", scope, count, wait)
        return msgspec.msgpack.decode(answer, type=bool)

    async def drain(self, scope: str) -> None:
        """Empty the bucket."""
        await self._pod.ask("drain", scope)


class PodNotes:
    """Progress and lines of ``ctx.log``, which the pod stores."""

    def __init__(self, pod: Pod) -> None:
        self.secrets: Sequence[str] = ()
        self._pod = pod

    def open(self, job: ClaimedJob, secrets: Sequence[str]) -> "PodNotes":
        """Return where the run puts progress and lines."""
        self.secrets = secrets
        return self

    def now(self) -> datetime:
        """Return any time: the pod dates a line when the line arrives."""
        return _ANY_TIME

    def set_progress(self, progress: NewProgress) -> None:
        """Send the progress to the pod."""
        self._pod.tell("progress", progress)

    def add_line(self, _: datetime, level: int, text: str) -> None:
        """Send a line to the pod, cut as the pod does. A cut must not halve a secret."""
        self._pod.tell("line", level, clean_text(without(text, self.secrets), LINE_BYTES))


class PodJobs:
    """The store of the pod, as far as a handler reads from the store."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    async def parents(self, job_ids: Sequence[JobId]) -> dict[JobId, tuple[JobId, ...]]:
        """Read as the store of the pod does."""
        answer = await self._pod.ask("parents", job_ids)
        return msgspec.msgpack.decode(answer, type=dict[JobId, tuple[JobId, ...]])

    async def get(self, job_ids: Sequence[JobId]) -> dict[JobId, Job]:
        """Read as the store of the pod does."""
        answer = await self._pod.ask("get", job_ids)
        return msgspec.msgpack.decode(answer, type=dict[JobId, Job])

    async def checkpoint(self, job_id: JobId) -> str | None:
        """Read as the store of the pod does."""
        return msgspec.msgpack.decode(await self._pod.ask("checkpoint", job_id), type=str | None)

    async def save_checkpoint(self, claim: Claim, text: str) -> bool | None:
        """Store as the pod does, under the claim."""
        answer = await self._pod.ask("save_checkpoint", claim, text)
        return msgspec.msgpack.decode(answer, type=bool | None)

    async def first_time(self, *_: object, **__: object) -> bool:
        """Refuse: the connection is in the child, and the store is in the pod.

        :raises InvalidInput: always
        """
        raise _no_store("once")

    async def finalize(self, ends: Sequence[object], *, connection: object = None) -> Any:
        """Refuse: the connection is in the child, and the store is in the pod.

        :raises InvalidInput: always
        """
        raise _no_store("finish_in")


def _no_store(name: str) -> InvalidInput:
    return InvalidInput(
        name,
        "is not there for a handler in a process, which has no store",
        'leave out executor="process" for this handler',
    )


def _message(request: EnqueueRequest) -> RequestMessage:
    payload = request.payload
    text = payload if isinstance(payload, str) else encode_json(request.kind, payload)
    given = {name: getattr(request, name) for name in GivenOptions.__struct_fields__}
    return RequestMessage(request.kind, str(text), msgspec.to_builtins(GivenOptions(**given)))
