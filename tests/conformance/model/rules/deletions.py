"""Queues, schedules and rate limits are deleted, refused, and named again."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId
from forge_jobs.model.queues import QueueChange, QueueSettings, RateLimit
from tests.conformance.model.endings import ENDINGS, REVIVALS
from tests.conformance.model.program import COMMON, LEASE, QUEUES, SECOND, queue
from tests.conformance.model.rules.coordination import scope
from tests.conformance.model.rules.instants import Instants
from tests.conformance.model.rules.schedules import name_of

_NOBODYS = "nobody's"
_LAST_JOBS = ("done", "failed", "dead", "cancel", "run", "wait")
_AGAIN = ("enqueue", "register", "deploy", "edit", "fire")


class Deletions(Instants):
    @rule(name=st.sampled_from([*QUEUES, _NOBODYS]))
    def delete_queue(self, name: str) -> None:
        """Delete a queue with any content, whichever pods declare the queue."""
        self.do("config.delete_queue", name)
        self.do("config.queues")

    @rule(name=queue, last=st.sampled_from(_LAST_JOBS))
    def queue_with_one_job_is_not_deleted(self, name: str, last: str) -> None:
        """Expect a refusal while one job is left in the queue, and then remove the job."""
        self._empty(name)
        lease = self.new_pod()
        self.stock(name)
        if last not in ("wait", "cancel"):
            claims = self.take(name, lease, 1, 1)
            if last != "run":
                self.end(claims, ENDINGS[last])
        elif last == "cancel":
            self.do("jobs.cancel", JobFilter(queues=(name,)))
        self.clock.advance(LEASE)
        self.do("config.set_paused", name, True)
        self.do("config.delete_queue", name)
        self.do("config.queues")
        self._empty(name)
        self.do("config.delete_queue", name)
        self._look_at_the_end_of(name)

    @rule(name=queue, again=st.sampled_from(_AGAIN), same_pod=st.booleans())
    def queue_comes_back(self, name: str, again: str, same_pod: bool) -> None:
        """Keep a queue until the very end of the last pod's lease. Later the queue is as new."""
        self._empty(name)
        lease = self.new_pod()
        self.do("config.set_queue", name, QueueChange(max_workers=2))
        self.do("config.set_paused", name, True)
        self.share_out()
        self.before_and_at(LEASE, lambda: self.do("config.delete_queue", name))
        self._look_at_the_end_of(name)
        self.do("jobs.heartbeat", lease, [], LEASE)
        self.do("procs.lower_grants", lease, {name: 0})
        self._name_again(name, again)
        self.do("config.queues")
        self.do("procs.allocations")
        self.beat_of(lease) if same_pod else self.new_pod()
        self.share_out()
        self.stock(name)
        self.take(name, self.leases[-1], 2, 2)
        self.do("config.queues")

    def _name_again(self, name: str, how: str) -> None:
        if how == "enqueue":
            # By one program and by another: each may believe to know the queue.
            for _ in range(2):
                self.put_in([self.new_request(name)])
        elif how == "register":
            self._admit(HostId(self.new_id()), (name,), (COMMON,))
        elif how == "deploy":
            self.do("config.ensure_queue", name, QueueSettings(max_workers=1))
        elif how == "edit":
            self.do("config.set_queue", name, QueueChange(max_workers=1))
        else:
            self.edit_schedule("nightly", name, overlap=True)
            self.pause_schedule("nightly", paused=False)
            self.clock.advance(7 * SECOND)
            self.fire_all([self.firing_of(each) for each in self.read_due()])

    def _empty(self, name: str) -> None:
        """No job is left in the queue, and no pod alive."""
        self.clock.advance(LEASE)
        self.look_for_stale()
        self.bring_back(REVIVALS["dead"])
        self.do("jobs.delete", JobFilter(queues=(name,)), limit=1_000)

    def _look_at_the_end_of(self, name: str) -> None:
        for method in ("config.delete_queue", "config.clear_cooldown"):
            self.do(method, name)
        self.do("config.set_paused", name, False)
        for read in ("config.queues", "jobs.counts", "procs.allocations", "procs.pods"):
            self.do(read)
        self.read_metrics(name)
        self.do("jobs.events", queue=name, limit=1_000)
        self.read_news()

    @rule(name=name_of, to=queue)
    def schedule_comes_back(self, name: str, to: str) -> None:
        """Expect that an edit brings a schedule back as new, and that code does not."""
        self.edit_schedule(name, to, overlap=True)
        self.trigger(name, None)
        self.pause_schedule(name, paused=True)
        for _ in range(2):
            self.do("cron.delete_schedule", name)
        spec = self._spec(name, to, overlap=False)
        self.do("cron.ensure_schedule", spec, self.clock.now() + SECOND)
        self.clock.advance(SECOND)
        self.fire_all([self.firing_of(each) for each in self.read_due()])
        self.do("cron.pause_schedule", name, False, self.clock.now())
        self.do("cron.get_schedule", name)
        self.do("cron.schedules", with_deleted=True)
        self.edit_schedule(name, to, overlap=True)
        self.do("cron.schedules")

    @rule(name=scope)
    def delete_rate_limit(self, name: str) -> None:
        self.do("config.delete_rate_limit", name)
        self._forget_taken()

    @rule(name=scope, by_operator=st.booleans())
    def rate_limit_comes_back(self, name: str, by_operator: bool) -> None:
        """Expect a full bucket with no line ahead, whatever was missing before."""
        self.set_rate_limit(name, RateLimit(3, 5 * SECOND))
        self.do("config.drain_tokens", name)
        self.do("config.take_turns", name, [1, 1], 60 * SECOND)
        self.delete_rate_limit(name)
        for method, about in (
            ("config.take_tokens", (1,)),
            ("config.take_turns", ([1], 60 * SECOND)),
            ("config.drain_tokens", ()),
            ("config.delete_rate_limit", ()),
        ):
            self.do(method, name, *about)
        self.do("config.rate_limits")
        declare = self.set_rate_limit if by_operator else self.deploy_rate_limit
        declare(name, RateLimit(3, 5 * SECOND))
        self.do("config.rate_limits")
        self.do("config.take_turns", name, [1], 60 * SECOND)
        self.take_tokens_of(name, 3)
