"""Participants of a run: real stores and the reference, all asked the same.

Stores make values up: epochs, versions, numbers of handovers, cursors. A program names such a value
by the number of the call that returned it, and every participant knows which value its own store
returned then. So one program means the same to all of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from forge_jobs.clock import Clock
from forge_jobs.errors import StorageError
from forge_jobs.model.filters import BulkOutcome, Page
from forge_jobs.model.letters import Letter
from forge_jobs.model.pod_requests import PodRequest
from forge_jobs.model.processes import Allocation, AllocationChange, Leadership, PodLease
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule
from forge_jobs.model.transitions import Delivery, Handover
from forge_jobs.storage.protocols import Storage
from tests.conformance.model.flows import Flows
from tests.conformance.model.reference import Reference
from tests.support.backends import BACKENDS, VARIANTS, forget, lent, problems_in

_PROMPT = 10.0
"""Seconds after which a wake-up counts as lost."""

_OPAQUE: dict[type, dict[str, str]] = {Leadership: {"fleet_version": ""}, PodRequest: {"epoch": ""}}


class Raised(Struct, frozen=True):
    """A refused call, and the kind of refusal. The text is for people."""

    error: str


NOT_ASKED = Raised("not asked")
"""In place of an answer: the store has no transactions of callers."""


class Names:
    """Made-up values of one participant, by the call that returned them."""

    def __init__(self) -> None:
        self._own: dict[Hashable, Any] = {}
        self._call = 0

    def next_call(self, number: int) -> None:
        self._call = number

    def given(self, value: Any) -> Any:
        """Return an answer with made-up values replaced by the number of this call."""
        match value:
            case list():
                value = [self.given(each) for each in value]
            case PodLease():
                value = replace(value, epoch=str(self._learn(value.host_id, value.epoch)))
            case Allocation():
                value = replace(value, version=self._learn(f"queue {value.queue}", value.version))
            case Schedule():
                value = replace(value, version=self._learn(value.spec.name, value.version))
            case Handover():
                news = (value.child_id, value.parent_id)
                value = replace(value, id=self._learn(news, value.id))
            case Letter():
                value = replace(value, id=str(self._learn(value.job.id, value.id)))
            case Leadership() | PodRequest():
                value = replace(value, **_OPAQUE[type(value)])
            case DueSchedules():
                value = replace(value, schedules=tuple(map(self.given, value.schedules)))
            case Page() | BulkOutcome() if value.cursor is not None:
                value = replace(value, cursor=str(self._learn("cursor", value.cursor)))
        return value

    def _learn(self, what: Hashable, own: Any) -> int:
        self._own[what, self._call] = own
        return self._call

    def asked(self, value: Any) -> Any:
        """Return an argument as this participant's own store understands it."""
        match value:
            case PodLease():
                return replace(value, epoch=self._own[value.host_id, int(value.epoch)])
            case AllocationChange():
                return replace(value, version=self._own[f"queue {value.queue}", value.version])
            case Firing():
                return replace(value, version=self._own[value.name, value.version])
            case Delivery():
                news = (value.handover.child_id, value.handover.parent_id)
                own = self._own[news, value.handover.id]
                return replace(value, handover=replace(value.handover, id=own))
            case Letter():
                return replace(value, id=self._own[value.job.id, int(value.id)])
            case list():
                return [self.asked(each) for each in value]
        return value

    def cursor(self, number: str) -> Any:
        return self._own["cursor", int(number)]


class Participant:
    """Anything with the four views: answers calls in the program's own names."""

    name: str

    def __init__(self) -> None:
        self._names = Names()

    def _prepare(
        self, number: int, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        self._names.next_call(number)
        if options.get("cursor") is not None:
            options = {**options, "cursor": self._names.cursor(options["cursor"])}
        if "skip" in options:
            passed_over = {each.id for each in self._names.asked([*options["skip"]])}
            options = {**options, "skip": passed_over}
        return [self._names.asked(each) for each in arguments], options


class Believed(Participant):
    """The reference."""

    name = "the model"

    def __init__(self, reference: Reference) -> None:
        super().__init__()
        self._reference = reference

    def call(self, number: int, method: str, arguments: Any, options: Any) -> Any:
        view, _, verb = method.partition(".")
        given, options = self._prepare(number, arguments, options)
        try:
            answer = getattr(getattr(self._reference, view), verb)(*given, **options)
        except StorageError as error:
            return Raised(type(error).__name__)
        return self._names.given(answer)


class TriedStore(Participant):
    """A real store, held through two bundles that take turns, as two processes would."""

    def __init__(self, backend: str, folder: Path, clock: Clock) -> None:
        super().__init__()
        self.name = backend
        self._folder, self._clock = folder, clock
        self._stack = AsyncExitStack()
        self._bundles: list[Storage] = []
        self._fleets: dict[str, list[Allocation]] = {}

    async def open(self) -> None:
        opened = (BACKENDS | VARIANTS)[self.name](self._folder, self._clock)
        first = await self._stack.enter_async_context(opened)
        second = await self._stack.enter_async_context(await first.reopen())
        self._bundles = [first, second]

    async def close(self) -> None:
        await self._stack.aclose()

    async def reconnect(self) -> None:
        """Reopen the store: memory of the process is lost, acknowledged writes stay."""
        await self.close()
        self._stack = AsyncExitStack()
        await self.open()

    async def discard(self) -> None:
        await self.close()
        await forget(self.name, self._folder)

    async def call(self, number: int, method: str, arguments: Any, options: Any) -> Any:
        view, _, verb = method.partition(".")
        bundle = self._bundles[number % 2]
        given, options = self._prepare(number, arguments, options)
        asked_of = Flows(bundle) if view == "flows" else getattr(bundle, view)
        asking: Callable[..., Awaitable[Any]] = getattr(asked_of, verb)
        try:
            answer = await asking(*given, **options)
        except StorageError as error:
            return Raised(type(error).__name__)
        if isinstance(answer, Leadership) and answer.fleet_version:
            await self._check_fleet_version(answer)
        return self._names.given(answer)

    async def call_in_transaction(
        self, number: int, method: str, arguments: Any, *, commits: bool
    ) -> Any:
        """Call in a transaction of a caller, which commits or rolls back.

        On a store that has no such transactions nothing is called.
        """
        given, _ = self._prepare(number, arguments, {})
        asking: Callable[..., Awaitable[Any]] = getattr(
            self._bundles[number % 2].jobs, method.partition(".")[2]
        )
        async with lent(self.name, self._folder, commits=commits) as connection:
            if connection is None:
                return NOT_ASKED
            try:
                return self._names.given(await asking(*given, connection=connection))
            except StorageError as error:
                return Raised(type(error).__name__)

    async def drain_wakeups(self) -> None:
        """Take all wake-ups that have come so far."""
        for each in self._bundles:
            while await each.jobs.wait_for_work(frozenset(), timedelta(0)):
                pass

    async def wakes_for_letters(self) -> bool:
        """Return whether both bundles wake those who relay."""
        try:
            async with asyncio.timeout(_PROMPT):
                for each in self._bundles:
                    while not (
                        await each.jobs.wait_for_work(frozenset(), timedelta(seconds=_PROMPT))
                    ).letters:
                        pass
        except TimeoutError:
            return False
        return True

    async def letters_in_parts(self, most: int) -> list[Letter]:
        """Read and forget all letters, in answers of fewer than ``most``.

        For letters that are too large for one answer, in a store without others.
        """
        found: list[Letter] = []
        jobs = self._bundles[0].jobs
        while part := await jobs.letters(1_000):
            assert len(part) < most, f"{self.name}: one answer brings all payloads"
            await jobs.forget_letters(part)
            found += part
        return found

    async def problems(self) -> list[str]:
        """Return what is wrong with the stored records, read from outside."""
        return await problems_in(self.name, self._folder)

    async def sweep(self) -> None:
        """Sweep: a queue in use by another process may have to be listed after a deletion."""
        await self._bundles[0].jobs.sweep(1_000)

    async def _check_fleet_version(self, leadership: Leadership) -> None:
        """Expect that a fleet version seen before means the allocations seen with it."""
        now = await self._bundles[0].procs.allocations()
        seen = self._fleets.setdefault(leadership.fleet_version, now)
        assert seen == now, f"{self.name}: allocations changed under one fleet version"
