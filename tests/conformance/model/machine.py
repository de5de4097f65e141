"""A Hypothesis machine that does the same to a store and to the model and compares.

Beside single steps there are adversaries, composite steps that make rare orders common: a
zombie that ends its job after it was given away, a reaper whose scan is out of date, storms on
one unique key.
"""

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from anyio.from_thread import BlockingPortal
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import HostId, JobId, new_job_id, new_worker_id
from forge_jobs.model.jobs import ACTIVE, Claim, JobStatus, NewJob, Refusal, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Cooldown, Finalization, Revival, Transition
from forge_jobs.storage.protocols import Storage
from tests.conformance.model.reference import LEASE, ModelJob, ModelPod, ReferenceStore
from tests.support.backends import OpenBackend
from tests.support.factories import (
    KIND,
    SECOND,
    counters,
    crashed,
    dead,
    done,
    failed,
    held,
    only,
    register,
    snoozed,
)

T = TypeVar("T")
QUEUES = ("q", "r")
_TICKS = (
    timedelta(microseconds=1),
    SECOND,
    5 * SECOND,
    LEASE - timedelta(microseconds=1),
    LEASE,
    timedelta(seconds=61),
    timedelta(days=1),
)
_ENDINGS = {
    "done": done('"r"'),
    "failed": failed(2 * SECOND),
    "failed at once": failed(),
    "dead": dead(),
    "snoozed": snoozed(SECOND),
    "throttled": snoozed(SECOND, cooldown=Cooldown(5 * SECOND, 1)),
}

index = st.integers(0, 10_000)
queue = st.sampled_from(QUEUES)
ending = st.sampled_from(sorted(_ENDINGS))
few = st.lists(index, min_size=1, max_size=4)
verb = st.sampled_from(["cancel", "delete", "requeue", "run_now"])


class StoreMachine(RuleBasedStateMachine):
    """Subclasses name the backend and lend an event loop."""

    portal: ClassVar[BlockingPortal]
    open_backend: ClassVar[OpenBackend]

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = ReferenceStore(self.clock)
        self.requests: list[NewJob] = []
        self.claims: list[Claim] = []
        self.owners: dict[Claim, HostId] = {}
        self.leases: list[PodLease] = []
        self.scanned: list[Claim] = []
        self.done: set[JobId] = set()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        opened = type(self).open_backend(folder, self.clock)
        self.storage: Storage = self._stack.enter_context(
            self.portal.wrap_async_context_manager(opened)
        )

    def teardown(self) -> None:
        with self._stack:
            self._compare_counts()

    def run(self, call: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        async def calling() -> T:
            return await call(*args, **options)

        return self.portal.call(calling)

    # -- pods and time

    @initialize()
    def two_pods(self) -> None:
        for _ in range(2):
            self._register(None)

    def _register(self, lease: PodLease | None) -> PodLease:
        host = lease.host_id if lease else None
        lease = self.run(register, self.storage, queues=QUEUES, lease_for=LEASE, host_id=host)
        self.model.pods[lease.host_id] = ModelPod(lease.epoch, self.clock.now() + LEASE)
        self.leases.append(lease)
        return lease

    @rule(which=st.none() | index)
    def register_pod(self, which: int | None) -> None:
        self._register(None if which is None else self._pick(self.leases, which))

    @rule(which=index)
    def unregister_pod(self, which: int) -> None:
        lease = self._pick(self.leases, which)
        self.run(self.storage.procs.unregister, lease)
        pod = self.model.pods.get(lease.host_id)
        if pod is not None and pod.epoch == lease.epoch:
            del self.model.pods[lease.host_id]

    @rule(step=st.sampled_from(_TICKS))
    def tick(self, step: timedelta) -> None:
        self.clock.advance(step)

    @rule(name=queue, paused=st.booleans())
    def pause_or_resume(self, name: str, paused: bool) -> None:
        self.run(self.storage.config.set_paused, name, paused)
        (self.model.paused.add if paused else self.model.paused.discard)(name)

    # -- producers

    @rule(
        name=queue,
        keys=st.lists(st.sampled_from([None, None, "a", "b"]), min_size=1, max_size=3),
        priority=st.integers(-1, 1),
        delay=st.sampled_from([None, None, 5 * SECOND]),
        expires_in=st.sampled_from([None, None, None, 20 * SECOND]),
    )
    def enqueue(
        self,
        name: str,
        keys: list[str | None],
        *,
        priority: int,
        delay: timedelta | None,
        expires_in: timedelta | None,
    ) -> None:
        self._enqueue(
            [
                NewJob(
                    id=new_job_id(),
                    queue=name,
                    kind=KIND,
                    payload="{}",
                    priority=priority,
                    delay=delay,
                    unique=Unique(key) if key else None,
                    expires_at=self.clock.now() + expires_in if expires_in else None,
                )
                for key in keys
            ]
        )

    @precondition(lambda self: self.requests)
    @rule(which=few)
    def enqueue_again_after_a_lost_reply(self, which: list[int]) -> None:
        chosen = [self._pick(self.requests, number) for number in which]
        self._enqueue([request for request in chosen if request.id in self.model.jobs])

    def _enqueue(self, requests: list[NewJob]) -> None:
        outcomes = self.run(self.storage.jobs.enqueue, requests)
        assert outcomes == [self.model.enqueue(request) for request in requests]
        self.requests += [request for request in requests if request not in self.requests]

    # -- workers

    @rule(name=queue, which=index, limit=st.integers(1, 4), workers=st.integers(0, 4))
    def claim(self, name: str, which: int, limit: int, workers: int) -> None:
        self._claim(name, self._pick(self.leases, which), limit, workers)

    def _claim(self, name: str, lease: PodLease, limit: int, workers: int) -> list[Claim]:
        worker_ids = [new_worker_id() for _ in range(workers)]
        kinds = frozenset({KIND})
        claimed = self.run(self.storage.jobs.claim, name, worker_ids, limit, kinds, lease)
        expected = self.model.claim(name, workers, limit, lease)
        assert [(c.claim.job_id, c.claim.token, c.attempt) for c in claimed] == [
            (job.id, job.token, job.attempt) for job in expected
        ]
        assert [(c.crashes, c.snoozes) for c in claimed] == [
            (job.crashes, job.snoozes) for job in expected
        ]
        claims = [c.claim for c in claimed]
        assert not set(claims) & set(self.claims), "a token was given twice"
        self.claims += claims
        self.owners |= dict.fromkeys(claims, lease.host_id)
        return claims

    @precondition(lambda self: self.claims)
    @rule(which=few, how=ending, times=st.integers(1, 2))
    def finalize(self, which: list[int], how: str, times: int) -> None:
        batch = [self._pick(self.claims, number) for number in which]
        for _ in range(times):
            self._finalize(batch, _ENDINGS[how])

    def _finalize(self, claims: list[Claim], transition: Transition) -> list[bool]:
        items = [Finalization(each, transition) for each in claims]
        answers = self.run(self.storage.jobs.finalize, items)
        assert answers == self.model.finalize(claims, transition)
        return answers

    @precondition(lambda self: self.claims)
    @rule(which=few)
    def release(self, which: list[int]) -> None:
        self._release([self._pick(self.claims, number) for number in which])

    def _release(self, claims: list[Claim]) -> None:
        answers = self.run(self.storage.jobs.release, claims)
        assert answers == self.model.release(claims)

    @rule(pod=index, which=st.lists(index, max_size=5), everything=st.booleans())
    def beat(self, pod: int, which: list[int], everything: bool) -> None:
        lease = self._pick(self.leases, pod)
        mine = [each for each in self.claims if self.owners[each] == lease.host_id]
        chosen = [self._pick(mine, number) for number in which if mine]
        if everything:
            chosen += self.model.held_by(lease.host_id)
        self._beat(lease, list(dict.fromkeys(chosen)))

    def _beat(self, lease: PodLease, claims: list[Claim]) -> None:
        was_live = self.model.is_live(lease)
        reported = [held(each, "worker") for each in claims]
        beat = self.run(self.storage.jobs.heartbeat, lease, reported, LEASE)
        assert beat.lease_held == was_live
        assert beat.claims == self.model.beat(lease, claims)
        if was_live:
            assert set(beat.unknown) == self.model.held_by(lease.host_id) - set(claims)

    # -- the reaper, in two steps as it is

    @rule()
    def scan(self) -> None:
        self._scan()

    def _scan(self) -> None:
        stale = self.run(self.storage.jobs.stale_claims, LEASE, 1_000)
        assert {s.claim for s in stale} == {
            Claim(job.queue, job.id, job.token) for job in self.model.stale()
        }
        for each in stale:
            job = self.model.jobs[each.claim.job_id]
            assert (each.crashes, each.cancel_requested) == (job.crashes, job.asked)
        self.scanned = [s.claim for s in stale]

    @precondition(lambda self: self.scanned)
    @rule(die=st.booleans())
    def revive(self, die: bool) -> None:
        self._revive(dead(count_crash=True) if die else crashed())

    def _revive(self, transition: Transition) -> None:
        items = [Revival(each, transition) for each in self.scanned]
        answers = self.run(self.storage.jobs.revive, items, LEASE)
        assert answers == [self.model.revive(each, transition) for each in self.scanned]

    # -- operators

    @precondition(lambda self: self.requests)
    @rule(name=verb, which=index)
    def operate(self, name: str, which: int) -> None:
        self._operate(name, self._pick(self.requests, which).id)

    def _operate(self, name: str, job_id: JobId) -> None:
        before = self.model.jobs.get(job_id)
        was_running = before is not None and before.status is JobStatus.IN_PROGRESS
        outcome = self.run(getattr(self.storage.jobs, name), only(job_id))
        refusal: Refusal | None = getattr(self.model, name)(job_id)
        asked = name == "cancel" and was_running
        assert dict(outcome.refused) == ({job_id: refusal} if refusal else {})
        assert outcome.requested == ((job_id,) if asked else ())
        assert outcome.changed == (() if refusal or asked else (job_id,))
        assert outcome.cursor is None
        if name in {"run_now", "requeue"} and refusal is None:
            self._learn(self.model.jobs[job_id])

    def _learn(self, job: ModelJob) -> None:
        """What the prose leaves open: where a job goes that is told to run now although it was
        due, and whether an expiry that has passed outlives a requeue."""
        stored = self.run(self.storage.jobs.get, [job.id])[job.id]
        assert stored.due_at in {job.due, self.clock.now()}
        assert stored.expires_at in {job.expires, None}
        job.due, job.expires = stored.due_at, stored.expires_at

    @rule()
    def expire(self) -> None:
        assert self.run(self.storage.jobs.expire, 1_000) == self.model.expire()

    # -- adversaries

    def _stock(self, name: str) -> None:
        """Something to claim, or the rare order would be tried on nothing."""
        self._enqueue([NewJob(id=new_job_id(), queue=name, kind=KIND, payload="{}", priority=-1)])

    @rule(name=queue, how=ending)
    def zombie(self, name: str, how: str) -> None:
        """A pod freezes, others revive and claim its jobs, then it ends them, twice."""
        self._stock(name)
        frozen = self._claim(name, self._register(None), 2, 2)
        self.clock.advance(LEASE)
        self._scan()
        self._revive(crashed())
        self._claim(name, self._register(None), 2, 2)
        for _ in range(2 if frozen else 0):
            self._finalize(frozen, _ENDINGS[how])
        self._beat(self.leases[-2], frozen)
        if frozen:
            self._release(frozen)

    @rule(name=queue, meanwhile=st.sampled_from(["finalize", "cancel", "beat", "release"]))
    def reap_race(self, name: str, meanwhile: str) -> None:
        """Something happens to stale claims between the reaper's scan and its write."""
        self._stock(name)
        lease = self._register(None)
        claims = self._claim(name, lease, 2, 2)
        self.clock.advance(LEASE)
        self._scan()
        if claims and meanwhile == "finalize":
            self._finalize(claims, failed())
        elif meanwhile == "cancel":
            for each in claims:
                self._operate("cancel", each.job_id)
        elif meanwhile == "beat":
            self._beat(lease, claims)
        elif claims:
            self._release(claims)
        self._revive(crashed())

    @rule(name=queue)
    def late_claim(self, name: str) -> None:
        """A reaper sleeps after its scan; its claims are revived, claimed and stale again."""
        self._stock(name)
        self._claim(name, self._register(None), 2, 2)
        self.clock.advance(LEASE)
        self._scan()
        old = self.scanned
        self._revive(crashed())
        self._claim(name, self._register(None), 2, 2)
        self.clock.advance(LEASE)
        self.scanned = old
        self._revive(crashed())

    @rule(name=queue, how=st.sampled_from(["dead", "failed at once", "done"]))
    def unique_storm(self, name: str, how: str) -> None:
        """One key is freed, taken again, and asked back by a requeue."""

        def keyed() -> NewJob:
            return NewJob(id=new_job_id(), queue=name, kind=KIND, payload="{}", unique=Unique("a"))

        self._enqueue([keyed(), keyed()])
        claims = self._claim(name, self._register(None), 4, 4)
        if claims:
            self._finalize(claims, _ENDINGS[how])
        self._enqueue([keyed()])
        for each in claims:
            self._operate("requeue", each.job_id)

    @rule(name=queue, how=ending)
    def cancel_race(self, name: str, how: str) -> None:
        """Jobs are asked to cancel, end all the same, are asked back and claimed again."""
        self._stock(name)
        lease = self._register(None)
        claims = self._claim(name, lease, 2, 2)
        for each in claims:
            self._operate("cancel", each.job_id)
        if claims:
            self._finalize(claims, _ENDINGS[how])
        for each in claims:
            self._operate("requeue", each.job_id)
        self._beat(lease, self._claim(name, lease, 2, 2))

    @rule(name=queue, ahead=st.integers(1, 4))
    def crash_loop(self, name: str, ahead: int) -> None:
        """The owner dies; a pod then asks for work to hold ahead."""
        self._stock(name)
        self._claim(name, self._register(None), 2, 2)
        self.clock.advance(LEASE)
        self._scan()
        self._revive(crashed())
        self._claim(name, self._register(None), ahead, 0)

    @rule(name=queue)
    def pod_name_used_again(self, name: str) -> None:
        """A pod registers again; the beats of its former self keep neither lease alive."""
        former = self._register(None)
        lease = self._register(former)
        self.clock.advance(LEASE - SECOND)
        self._beat(former, [])
        self.clock.advance(SECOND)
        self._claim(name, former, 1, 1)
        self._claim(name, lease, 1, 1)
        self._beat(lease, [])

    # -- what must hold after every step

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        found = self.run(self.storage.jobs.get, [request.id for request in self.requests])
        assert set(found) == set(self.model.jobs)
        for job in self.model.jobs.values():
            stored = found[job.id]
            assert (stored.status, stored.cause) == (job.status, job.cause) or (
                job.status is JobStatus.IN_PROGRESS and stored.status is job.status
            )
            assert stored.token == job.token
            if job.status is JobStatus.DONE:
                assert stored.result == job.result
            assert 0 <= stored.attempt <= stored.token
            if not job.blurred:
                counts = (stored.attempt, stored.crashes, stored.snoozes)
                assert counts == (job.attempt, job.crashes, job.snoozes)
            if job.status in ACTIVE:
                assert (stored.due_at, stored.cancel_requested) == (job.due, job.asked)

    @invariant()
    def nothing_is_lost_or_invented(self) -> None:
        assert len(self.model.jobs) == self.model.accepted - self.model.deleted

    @invariant()
    def done_is_for_good(self) -> None:
        jobs = self.model.jobs
        assert all(j not in jobs or jobs[j].status is JobStatus.DONE for j in self.done)
        self.done |= {job.id for job in jobs.values() if job.status is JobStatus.DONE}

    def _compare_counts(self) -> None:
        for name in QUEUES:
            expected = {c: n for (q, c), n in self.model.counts.items() if q == name and n}
            assert self.run(counters, self.storage, name) == expected
            by_status = self.run(self.storage.jobs.counts, [name])[name].by_status
            mine = [job.status for job in self.model.jobs.values() if job.queue == name]
            assert {s: n for s, n in by_status.items() if n} == {
                s.value: mine.count(s) for s in set(mine)
            }

    @staticmethod
    def _pick(items: list[T], number: int) -> T:
        return items[number % len(items)]
