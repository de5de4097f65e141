"""Jobs of sequences come in, end in all ways, are cancelled, deleted, requeued and restored.

Where one call removes, tells or brings back several jobs of a sequence, the contract leaves open by
which edges those behind wait meanwhile. So such calls are made for one job after the other.
"""

from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Line, Unique
from forge_jobs.policy.dependencies import delivery
from tests.conformance.model.endings import ENDINGS
from tests.conformance.model.program import SECOND, few, index, queue
from tests.conformance.model.reference.operators import matching, overdue
from tests.conformance.model.rules.lives import Lives

_KEYS = ("m", "n")
key_of_line = st.sampled_from(_KEYS)
policy = st.sampled_from(["wait", "skip", "stop"])
ending = st.sampled_from(["done", "failed", "dead"])
comes_back = st.sampled_from(["requeue", "restore"])
verb = st.sampled_from(["cancel", "delete", "requeue", "restore", "release_held"])
_MOST_STEPS = 20
_ONE_BY_ONE = ("jobs.delete", "jobs.requeue", "jobs.restore")


class Sequences(Lives):
    def do(self, method: str, *arguments: Any, **options: Any) -> Any:
        if method == "jobs.deliver" and len(arguments[0]) > 1 and self.world.members:
            return sum(super(Sequences, self).do(method, [each]) for each in arguments[0])
        if method == "jobs.cleanup":
            self._one_by_one("jobs.delete", overdue(self.world))
        elif method in _ONE_BY_ONE:
            self._one_by_one(method, [job.id for job in matching(self.world, arguments[0])])
        return super().do(method, *arguments, **options)

    def _one_by_one(self, method: str, ids: Collection[JobId]) -> None:
        members = [each for each in ids if each in self.world.members]
        if len(members) > 1:
            for job_id in members[:-1]:
                super().do(method, JobFilter(ids=(job_id,)))

    def members(self) -> list[JobId]:
        """Return the stored jobs of sequences, in the order in which they came."""
        return [each.id for each in self.requests if each.id in self.world.members]

    @rule(
        name=queue,
        keys=st.lists(key_of_line, min_size=1, max_size=4),
        rule=policy,
        unique=st.sampled_from([None, None, None, Unique("a")]),
        expires_in=st.sampled_from([None, None, None, 20 * SECOND]),
        priority=st.integers(-1, 1),
        named=st.sampled_from([None, None, "cancel", "continue", "hold", "note"]),
    )
    def enqueue_in_line(
        self,
        name: str,
        keys: list[str],
        rule: Any,
        unique: Unique | None,
        expires_in: Any,
        priority: int,
        named: Any,
    ) -> None:
        """Enqueue jobs, of which the first perhaps names the last one before."""
        last = self.world.last.get((name, keys[0]))
        fields = {
            "unique": unique,
            "priority": priority,
            "expires_at": self.clock.now() + expires_in if expires_in else None,
        }
        line = [self.new_request(name, **fields, sequence=Line(key, rule)) for key in keys]
        if named and last:
            line[0] = replace(line[0], after=(After(last, named),))
        self.put_in(line)

    @precondition(lambda self: self.members())
    @rule(name=verb, which=index)
    def act_on_a_member(self, name: str, which: int) -> None:
        self.operate(name, self.pick(self.members(), which))

    @rule(
        name=queue,
        rule=policy,
        how=ending,
        key=key_of_line,
        then=verb,
        which=few,
        told=st.booleans(),
    )
    def line_goes_on(
        self, name: str, rule: Any, how: str, key: str, then: str, which: list[int], told: bool
    ) -> None:
        """End the head, act on others of the line before or after these hear of it, and go on."""
        line = [self.new_request(name, priority=-2, sequence=Line(key, rule)) for _ in range(4)]
        self.put_in(line)
        self.open(name)
        self.end(self.take(name, self.new_pod(), 1, 1), ENDINGS[how])
        if told:
            self.tell_in_line()
        for number in which:
            self.operate(then, self.pick(line, number).id)
        self.tell_in_line()
        self.put_in([self.new_request(name, priority=-2, sequence=Line(key, rule))])
        self.end(self.take(name, self.new_pod(), 2, 2), ENDINGS["done"])

    @rule(name=queue, rule=policy, key=key_of_line, back=comes_back, which=few)
    def members_come_back(
        self, name: str, rule: Any, key: str, back: str, which: list[int]
    ) -> None:
        """Cancel some of a line, let the line go on or not, and bring them back."""
        line = [self.new_request(name, priority=-2, sequence=Line(key, rule)) for _ in range(4)]
        self.put_in(line)
        self.open(name)
        some = [self.pick(line, number).id for number in which]
        for job_id in some:
            self.operate("cancel", job_id)
        if len(some) % 2:
            self.tell_in_line()
            self.end(self.take(name, self.new_pod(), 1, 1), ENDINGS["done"])
        for job_id in reversed(some):
            self.operate(back, job_id)
        self.tell_in_line()

    def tell_in_line(self) -> None:
        """Deliver what there is, as the policies of the edges say."""
        for _ in range(_MOST_STEPS):
            if not (news := self.read_news()):
                return
            self.do("jobs.deliver", [delivery(each) for each in news])
