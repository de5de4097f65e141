"""Groups come in, whole or again, their members end in all ways, and operators act on the whole."""

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec import structs

from forge_jobs.clients.flows.plans import EnqueuedGroup, Group
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Claim
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange, Retention
from tests.conformance.model.endings import ENDINGS
from tests.conformance.model.program import COMMON, KEPT, KINDS, RARE, SECOND, index, queue
from tests.conformance.model.reference.groups import KIND
from tests.conformance.model.rules.sequences import Sequences
from tests.support.factories import dead, done

_CALLBACKS = ("on_settled", "on_success", "on_failure")
callbacks = st.sets(st.sampled_from(_CALLBACKS)).map(sorted)
members = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from([COMMON, COMMON, RARE]),
            "priority": st.integers(-1, 1),
            "delay": st.sampled_from([None, None, None, 5 * SECOND]),
            "unique_key": st.sampled_from([None, None, None, "g", "h"]),
        }
    ),
    max_size=4,
)
fate = st.sampled_from(["done", "done", "dead", "failed at once", "cancel", "delete", "wait"])
meanwhile = st.sampled_from(["", "again", "cancel", "resume", "requeue", "delete", "clean"])
_ALL_GO = Retention(max_done=0, max_dead=0, max_cancelled=0)


class Groups(Sequences):
    def __init__(self) -> None:
        super().__init__()
        self._groups: list[Group] = []

    def request_of_member(self, name: str, **fields: Any) -> EnqueueRequest:
        """Return a request of which a client asks no pod."""
        base: dict[str, Any] = {"kind": COMMON, "payload": "{}", "priority": 0, "queue": name}
        return EnqueueRequest(handler_options=HandlerOptions(), **(base | fields))

    def put_in_group(self, group: Group) -> None:
        answer = self.do("flows.enqueue_group", group)
        if not isinstance(answer, EnqueuedGroup):
            return
        if group not in self._groups:
            self._groups.append(group)
        known = {each.id for each in self.requests}
        outcomes = (*answer.members, *answer.callbacks.values())
        for job_id in dict.fromkeys((*(each.job_id for each in outcomes), answer.id)):
            if job_id not in known:
                # The other jobs of the program are known by less of their content.
                stored = self.world.jobs[job_id].request
                self.requests.append(structs.replace(stored, fingerprint=""))

    def _group(
        self, requests: list[EnqueueRequest], wanted: list[str], name: str | None, **fields: Any
    ) -> Group:
        own = dict.fromkeys(wanted, self.request_of_member(name or "q", **fields))
        return Group(requests, id=self.new_id(), queue=name, tags=("whole",), **own)

    @rule(
        where=st.lists(queue, min_size=4, max_size=4),
        parts=members,
        wanted=callbacks,
        name=st.none() | queue,
        behind=st.none() | index,
        policy=st.sampled_from(["cancel", "continue", "hold", "note"]),
    )
    def enqueue_group(
        self,
        where: list[str],
        parts: list[dict[str, Any]],
        wanted: list[str],
        name: str | None,
        behind: int | None,
        policy: Any,
    ) -> None:
        """Enqueue a group, also an empty one, and one whose first member comes after a group."""
        pairs = zip(where, parts, strict=False)
        requests = [self.request_of_member(of, **part) for of, part in pairs]
        stored = [each for each in self._groups if each.id in self.world.jobs]
        if requests and stored and behind is not None:
            # No key: a job that waits for a group must not be a member of that one.
            after = (After(JobId(str(self.pick(stored, behind).id)), policy),)
            requests[0] = requests[0].options(id=self.new_id(), after=after, unique_key=None)
        self.put_in_group(self._group(requests, wanted, name))

    @precondition(lambda self: self._groups)
    @rule(which=index)
    def enqueue_group_again(self, which: int) -> None:
        self.put_in_group(self.pick(self._groups, which))

    @precondition(lambda self: self._groups)
    @rule(which=index, act=st.sampled_from(["group", "cancel_group", "resume_group"]))
    def act_on_a_group(self, which: int, act: str) -> None:
        self.do(f"flows.{act}", self.pick(self._groups, which).id)

    @precondition(lambda self: self.requests)
    @rule(which=index)
    def take_a_job_for_a_group(self, which: int) -> None:
        """Resume and look at any job, which is seldom that of a group."""
        job_id = self.pick(self.requests, which).id
        for act in ("group", "resume_group"):
            self.do(f"flows.{act}", job_id)

    @rule(name=queue, most=st.integers(1, 4))
    def settle_groups(self, name: str, most: int) -> None:
        """Claim some of a queue, and end the jobs of groups as their handler does."""
        self.tell_in_line()
        self.settle(self.take(name, self._pod_of_groups(), most, most))

    def _pod_of_groups(self) -> PodLease:
        return self.new_pod(kinds=(*KINDS, KIND))

    def settle(self, claims: list[Claim]) -> None:
        """End the jobs of groups among these. The others stay as they are."""
        for claim in claims:
            job = self.world.jobs.get(claim.job_id)
            if job is not None and job.request.kind == KIND:
                ids = json.loads(job.payload)
                found = self.do("flows.settle", job.id, ids["on_success"], ids["on_failure"])
                is_done = isinstance(found, dict)
                self.end([claim], done(json.dumps(found)) if is_done else dead(error=None))

    @rule(
        name=queue,
        fates=st.lists(fate, min_size=1, max_size=4),
        wanted=callbacks,
        then=meanwhile,
        resumed=st.booleans(),
        later=fate,
    )
    def life_of_a_group(
        self, name: str, fates: list[str], wanted: list[str], then: str, resumed: bool, later: str
    ) -> None:
        """End the members, do something before and after the group hears, and perhaps resume."""
        requests = [self.request_of_member(name, priority=-4) for _ in fates]
        group = self._group(requests, wanted, name, priority=-4)
        self.put_in_group(group)
        self.open(name)
        gate = JobId(str(group.id))
        for round_of in (fates, [later] * len(fates)):
            self._end_members(name, gate, round_of)
            self._act_meanwhile(name, group, then)
            self.tell_in_line()
            self.do("flows.group", gate)
            self.settle(self.take(name, self._pod_of_groups(), 4, 4))
            self._act_meanwhile(name, group, then)
            self.tell_in_line()
            self.look_at_jobs()
            if not resumed:
                return
            self.do("flows.resume_group", gate)
            self.do("flows.group", gate)

    def _end_members(self, name: str, gate: JobId, fates: list[str]) -> None:
        """End the members that wait."""
        job = self.world.jobs.get(gate)
        waiting = [] if job is None else [each for each in sorted(job.edges) if self._waits(each)]
        for job_id, how in zip(waiting, fates, strict=False):
            if how in ENDINGS:
                self.end(self.take(name, self._pod_of_groups(), 1, 1), ENDINGS[how])
            elif how != "wait":
                self.operate(how, job_id)

    def _waits(self, job_id: JobId) -> bool:
        return job_id in self.world.jobs and self.world.jobs[job_id].is_active

    def _act_meanwhile(self, name: str, group: Group, then: str) -> None:
        gate = JobId(str(group.id))
        job = self.world.jobs.get(gate)
        parts = sorted(job.edges) if job else []
        if then == "again":
            self.put_in_group(group)
        elif then in ("cancel", "resume"):
            self.do(f"flows.{then}_group", gate)
        elif then in ("requeue", "delete"):
            self.operate(then, *parts[:1], gate)
        elif then == "clean":
            self.do("config.set_queue", name, QueueChange(retention=_ALL_GO))
            self.clock.advance(61 * SECOND)
            self.do("jobs.cleanup", 1_000, kept=KEPT)
            self.do("config.set_queue", name, QueueChange(back=frozenset({"retention"})))
