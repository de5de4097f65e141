"""A store that fails on demand: unreachable, or silent about what it did."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import structs

from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.transitions import Delivery, Revival
from forge_jobs.storage.protocols import Storage, StoreReport

_ENDING = ("exchange", "finalize", "release")
_TELLING = ("revive", "deliver")


class Faults:
    """The switch, shared by a storage and everything reopened from there, on any thread."""

    def __init__(self) -> None:
        self.down = False
        """True: every call raises Unavailable and does nothing."""
        self.calls: Counter[str] = Counter()
        """How often each method was called, failed calls included."""
        self._lost: Counter[str] = Counter()
        self._gates: dict[str, threading.Event] = {}
        self.waiting: Counter[str] = Counter()
        """Calls that have taken effect and whose reply is held back."""
        self.refused: dict[JobId, Exception] = {}
        """Errors by job, raised by a call that ends, releases, revives or tells such a job."""
        self.locked: set[JobId] = set()
        """Ends and releases of these jobs are answered with None."""
        self.refusing: Exception | None = None
        """Raised by every call, which then does nothing."""

    def lose_replies(self, method: str, count: int = 1) -> None:
        """The next calls of ``method`` take effect, and then raise Unavailable."""
        self._lost[method] += count

    def lost(self, method: str) -> bool:
        """All replies of ``method`` that were to be lost have been."""
        return self._lost[method] == 0

    def hold_replies(self, method: str) -> None:
        """Calls of ``method`` take effect and answer only after :meth:`let_go`."""
        self._gates[method] = threading.Event()

    def let_go(self, method: str) -> None:
        """Answer what was held back."""
        self._gates.pop(method).set()

    async def call(self, method: str, function: Any, args: Any, kwargs: Any) -> Any:
        """``function``, with the faults that are switched on."""
        self.calls[method] += 1
        if self.down:
            raise Unavailable("the test switched the store off")
        if self.refusing is not None:
            raise self.refusing
        if method in _ENDING:
            answer = await self._end(method, function, *args)
        else:
            if method in _TELLING:
                self._check(_told(item) for item in args[0])
            answer = await function(*args, **kwargs)
        gate = self._gates.get(method)
        if gate is not None:
            self.waiting[method] += 1
            await asyncio.to_thread(gate.wait, 30)
            self.waiting[method] -= 1
        if self._lost[method]:
            self._lost[method] -= 1
            raise Unavailable("the test lost the reply")
        return answer

    async def _end(self, method: str, function: Any, *args: Any) -> Any:
        """A call that ends claims, but for those that are locked."""
        place = 1 if method == "exchange" else 0
        items = args[place]
        jobs = [getattr(item, "claim", item).job_id for item in items]
        self._check(jobs)
        locked = [job_id in self.locked for job_id in jobs]
        taken = [item for item, is_locked in zip(items, locked, strict=True) if not is_locked]
        answer = await function(*args[:place], taken, *args[place + 1 :])
        each = iter(answer.settled if method == "exchange" else answer)
        settled = [None if is_locked else next(each) for is_locked in locked]
        return structs.replace(answer, settled=tuple(settled)) if method == "exchange" else settled

    def _check(self, jobs: Iterable[JobId]) -> None:
        for job_id in jobs:
            if job_id in self.refused:
                raise self.refused[job_id]


def _told(item: Revival | Delivery) -> JobId:
    return item.claim.job_id if isinstance(item, Revival) else item.handover.child_id


class _FaultyView:
    def __init__(self, view: Any, faults: Faults) -> None:
        self._view = view
        self._faults = faults
        self.store_id = view.store_id

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._view, name)
        if name in {"wake", "announce_changes"} or not callable(function):
            return function

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._faults.call(name, function, args, kwargs)

        return call


def faulty(storage: Storage, faults: Faults) -> Storage:
    """``storage`` behind the switch."""

    async def reopen() -> Storage:
        return faulty(await storage.reopen(), faults)

    async def report() -> StoreReport:
        found: StoreReport = await faults.call("report", storage.report, (), {})
        return found

    found = storage.wrapped(lambda view: _FaultyView(view, faults), reopen=reopen)
    found.name, found.report = f"faulty {storage.name}", report
    return found
