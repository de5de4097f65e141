"""The base of every rule: one call goes to the reference and to all stores, and must agree."""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from forge_jobs.clock import ManualClock
from forge_jobs.model.edges import MOST_ASKED, MOST_KIN, Kin
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import Claim, Job, NewJob
from forge_jobs.model.letters import Letter
from forge_jobs.model.processes import AllocationChange, PodLease
from forge_jobs.model.retention import Kept
from forge_jobs.model.schedules import Schedule
from forge_jobs.model.transitions import Handover, StaleClaim
from tests.conformance.model.differences import difference
from tests.conformance.model.endings import fitted
from tests.conformance.model.leeway import Leeway
from tests.conformance.model.participants import NOT_ASKED, Believed, TriedStore
from tests.conformance.model.reference import Reference, children

T = TypeVar("T")

LEASE = timedelta(seconds=15)
LEADER_LEASE = timedelta(seconds=10)
SECOND = timedelta(seconds=1)
KEPT = Kept(minutes=timedelta(days=30))
"""The same on all stores."""
_OF_CALLERS = frozenset({"jobs.first_time"})
"""Methods that run in callers' transactions only."""

_LIMITS = (100, 2)
"""Of relatives that are read. At two a store of few children reads pages, and says of more."""
_AFTER_REMOVAL = timedelta(milliseconds=1)
QUEUES = ("q", "r")
SHARED = "t"
"""The queue whose limits have shares. Few rules know of it."""
KINDS = ("tests.known", "tests.rare")
COMMON, RARE = KINDS
ODD_KIND = "tests.nobody_knows"

index = st.integers(0, 10_000)
few = st.lists(index, min_size=1, max_size=4)
queue = st.sampled_from(QUEUES)


class Program(RuleBasedStateMachine):
    """The state of a program while it runs. Subclasses add rules, and a test names the backends."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    backends: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        reference = Reference(self.clock)
        self.world = reference.world
        self.requests: list[NewJob] = []
        self.claims: list[Claim] = []
        self.attempts: dict[Claim, int] = {}
        self.leases: list[PodLease] = []
        self.scanned: list[StaleClaim] = []
        self.news: list[Handover] = []
        self.letters: list[Letter] = []
        self.plans: list[AllocationChange] = []
        self.read_schedules: list[Schedule] = []
        self.terms: list[tuple[HostId, int]] = []
        self._believed = Believed(reference)
        self._leeway = Leeway(self.world)
        self._calls = 0
        self._made = 0
        self._seen: dict[JobId, Job] = {}
        self._seen_kin: dict[JobId, Kin] = {}
        self._stack = ExitStack()
        self._tried: list[TriedStore] = []
        for backend in self.backends:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            tried = TriedStore(backend, Path(folder), self.clock)
            self._stack.callback(self._wait, tried.discard)
            self._tried.append(tried)
            self._wait(tried.open)

    def teardown(self) -> None:
        with self._stack:
            # A program that has failed already must not fail once more.
            if sys.exc_info()[0] is None:
                self.finish()

    def finish(self) -> None:
        """Check the invariants at the end of every program. Modules of rules add to them."""

    def _wait(self, call: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        # Not a portal: two hops between threads would take longer than the calls.
        return self.loop.run_until_complete(call(*arguments))

    # -- calls

    def do(self, method: str, *arguments: Any, **options: Any) -> Any:
        """The answer that the model gives and every store gave too."""
        self._calls += 1
        if method == "jobs.finalize":
            arguments = (fitted(arguments[0], self.world.jobs), *arguments[1:])
        elif method == "jobs.exchange":
            name, ends, *rest = arguments
            arguments = (name, fitted(ends, self.world.jobs), *rest)
        return self._ask_all(method, (self._calls, method, arguments, options), TriedStore.call)

    def do_in_transaction(self, method: str, *arguments: Any) -> Any:
        """The same of a call in a transaction of a caller, which commits.

        On a store without such transactions a call of its own, where the method has one.
        """
        self._calls += 1
        number = self._calls

        async def ask(tried: TriedStore, *call: Any) -> Any:
            found = await tried.call_in_transaction(number, method, arguments, commits=True)
            is_over = found is not NOT_ASKED or method in _OF_CALLERS
            return found if is_over else await tried.call(*call)

        return self._ask_all(method, (number, method, arguments, {}), ask)

    def _ask_all(self, method: str, call: tuple[Any, ...], ask: Callable[..., Any]) -> Any:
        removed, forgotten = self.world.removed, set(self.world.forgotten)
        expected = self._believed.call(*call)
        came_back = forgotten - self.world.forgotten
        for tried in self._tried:
            found = self._wait(ask, tried, *call)
            if found is not NOT_ASKED:
                self._compare(tried.name, method, expected, found)
            if came_back:
                self._wait(tried.sweep)
        if self.world.removed > removed:
            # An id is not enqueued again in the instant in which the job goes: tokens rely on that.
            self.clock.advance(_AFTER_REMOVAL)
        self.after_call()
        return expected

    def after_call(self) -> None:
        """Check the invariants after every single call."""

    def _compare(self, name: str, method: str, expected: Any, found: Any) -> None:
        wanted = self._leeway.normal(method, expected)
        told = difference(wanted, self._leeway.normal(method, found))
        assert told is None, f"{name}, {method}: {told}"

    def reconnect_all(self) -> None:
        for tried in self._tried:
            self._wait(tried.reconnect)

    def roll_back(self, method: str, *arguments: Any) -> None:
        """Call in a caller's transaction and roll back, on stores that have these."""
        self._calls += 1
        for tried in self._tried:
            call = partial(tried.call_in_transaction, commits=False)
            self._wait(call, self._calls, method, arguments)

    def drain_wakeups(self) -> None:
        for tried in self._tried:
            self._wait(tried.drain_wakeups)

    def letters_wake(self) -> None:
        """Expect that what a call has just written wakes those who relay letters."""
        for tried in self._tried:
            assert self._wait(tried.wakes_for_letters), f"{tried.name}: no wake-up for letters"

    def letters_come_in_parts(self, written: int) -> None:
        """Read and forget all letters of a store without others, of which not all fit at once."""
        if written < 3:
            return
        expected = {each.job.id for each in self.world.letters}
        for tried in self._tried:
            found = self._wait(tried.letters_in_parts, written)
            assert {each.job.id for each in found} == expected, tried.name
        self.world.letters.clear()

    def stores_are_in_order(self) -> None:
        """Expect of the records what no answer shows: no list has a job of another."""
        for tried in self._tried:
            problems = self._wait(tried.problems)
            assert not problems, f"{tried.name}: {problems}"

    def look_at_jobs(self, *, everything: bool = False) -> None:
        """Compare the jobs that the last step changed and all that run, or all there ever were."""
        now = {job_id: job.view() for job_id, job in self.world.jobs.items()}
        running = {job.id for job in self.world.claimed()}
        changed = [
            request.id
            for request in self.requests
            if everything
            or request.id in running
            or now.get(request.id) != self._seen.get(request.id)
        ]
        self._seen = now
        if changed:
            self.do("jobs.get", changed)
        self._look_at_kin(everything=everything)

    def _look_at_kin(self, *, everything: bool) -> None:
        """Compare the relatives of the jobs whose relatives the last step changed.

        "A job that is stored again under the id of a removed one may be without the children of the
        removed one."
        """
        alike = [each.id for each in self.requests if each.id not in self.world.outlived]
        now = children.kin(self.world, alike, MOST_KIN)
        changed = [
            job_id
            for job_id in dict.fromkeys(alike)
            if everything or now.get(job_id) != self._seen_kin.get(job_id)
        ]
        self._seen_kin = now
        for first in range(0, len(changed), MOST_ASKED):
            limit = _LIMITS[self._calls % len(_LIMITS)]
            some = changed[first : first + MOST_ASKED]
            self.do("jobs.kin", some, limit=limit)
            if any(self.world.jobs[each].edges for each in some if each in self.world.jobs):
                self.do("jobs.tallies", some)

    # -- what a program makes up

    def new_id(self) -> str:
        """Return the next of a fixed row of ids, the same in every run, not in ascending order."""
        self._made += 1
        return f"{(self._made * 7_919) % 100_003:026d}"

    @staticmethod
    def pick(items: list[T], number: int) -> T:
        return items[number % len(items)]

    def live_leases(self) -> list[PodLease]:
        """Return each pod's newest live lease, in the program's own names."""
        newest = {lease.host_id: lease for lease in self.leases}
        live = {pod.pod.host_id for pod in self.world.live_pods()}
        return [lease for host_id, lease in newest.items() if host_id in live]
