"""Runs tell of their progress, write lines and save checkpoints, also those that lost the job."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.progress import NewLine, NewProgress, ProgressNote
from tests.conformance.model.endings import ENDINGS, REVIVALS
from tests.conformance.model.program import LEASE, SECOND, few, index, queue
from tests.conformance.model.rules.unique_keys import UniqueKeys
from tests.conformance.model.rules.workers import ending

progress = st.sampled_from([None, NewProgress(1), NewProgress(2.5, 10, "half")])
first = st.integers(1, 4)
count = st.integers(0, 3)


class Telling(UniqueKeys):
    def __init__(self) -> None:
        super().__init__()
        self._told: dict[JobId, None] = {}

    def words_of(self, claim: Claim, first: int, count: int, given: Any) -> ProgressNote:
        """Return a note of a run, with lines from a place in the count of the run on."""
        now = self.clock.now()
        lines = [NewLine(seq, now, 20, f"line {seq}") for seq in range(first, first + count)]
        job = self.world.jobs.get(claim.job_id)
        attempt = self.attempts.get(claim, 1 if job is None else max(job.attempt, 1))
        return ProgressNote(claim=claim, attempt=attempt, progress=given, lines=tuple(lines))

    def tell(self, claims: list[Claim], first: int, count: int, given: Any) -> None:
        chosen = list(dict.fromkeys(claims))
        self._told |= dict.fromkeys(each.job_id for each in chosen)
        self.do("jobs.note_progress", [self.words_of(each, first, count, given) for each in chosen])

    def take_step(self, claim: Claim, step: str) -> None:
        """Take a step in a handler's transaction: rolled back first, then twice to the commit."""
        self.roll_back("jobs.first_time", claim, step)
        for _ in range(2):
            self.do_in_transaction("jobs.first_time", claim, step)

    def read_what_was_told(self, *ids: JobId) -> None:
        self.do("jobs.states", list(ids))
        for job_id in ids:
            self.do("jobs.checkpoint", job_id)
            self.do("jobs.job_log", job_id)

    def finish(self) -> None:
        self.do("jobs.states", list(dict.fromkeys(one.id for one in self.requests)))
        self.read_what_was_told(*self._told)
        super().finish()

    @precondition(lambda self: self.claims)
    @rule(which=few, first=first, count=count, given=progress, times=st.integers(1, 2))
    def tell_of_runs(
        self, which: list[int], first: int, count: int, given: Any, times: int
    ) -> None:
        """Notes of runs that go on, have ended or are lost, once or twice."""
        for _ in range(times):
            self.tell([self.pick(self.claims, number) for number in which], first, count, given)

    @precondition(lambda self: self.claims)
    @rule(which=index, text=st.sampled_from(["1", '{"page": 2}']))
    def save_a_checkpoint(self, which: int, text: str) -> None:
        """Save under any claim, and under a wrong name."""
        claim = self.pick(self.claims, which)
        self._told[claim.job_id] = None
        for each in (claim, replace(claim, queue="other"), replace(claim, host_id=HostId("h"))):
            self.do("jobs.save_checkpoint", each, text)
        self.read_what_was_told(claim.job_id)

    @precondition(lambda self: self.requests)
    @rule(which=few, attempt=st.sampled_from([None, 1, 2]), after=count, limit=first)
    def read_logs(self, which: list[int], attempt: int | None, after: int, limit: int) -> None:
        """Read states together, and logs page by page."""
        ids = [self.pick(self.requests, number).id for number in which]
        self.do("jobs.states", ids)
        self.do("jobs.job_log", ids[0], attempt=attempt, after=after, limit=limit)

    @rule(
        name=queue,
        hows=st.lists(ending, min_size=1, max_size=3),
        given=progress,
        is_one_pod=st.booleans(),
    )
    def life_of_a_run(self, name: str, hows: list[str], given: Any, is_one_pod: bool) -> None:
        """Tell before and after each end. The next run goes on where the last one stopped."""
        [job] = self._plain(name, 1)
        past: list[Claim] = []
        lease = self.new_pod()
        for how in hows:
            lease = lease if is_one_pod else self.new_pod()
            claims = self.take(name, lease, 1, 1)
            others = [replace(each, host_id=HostId("another")) for each in claims]
            self.tell([*others, *claims, *past], 1, 2, given)
            for each in (*claims, *past):
                self.do("jobs.save_checkpoint", each, f'"{how} {len(past)}"')
                self.take_step(each, "charge")
            self.end(claims, ENDINGS[how])
            self.tell(claims, 2, 2, None)
            self.read_what_was_told(job.id)
            past += claims
            self.clock.advance(2 * SECOND)
        self.operate("requeue", job.id)
        self.tell(past, 5, 1, NewProgress(9))
        again = self.take(name, lease, 1, 1)
        self.tell([*past, *again], 1, 1, None)
        for each in (*past, *again):
            self.take_step(each, "charge")
        self.read_what_was_told(job.id)
        self.end(again, ENDINGS["dead"])
        self.operate("delete", job.id)
        self.tell(again, 3, 1, given)
        self.read_what_was_told(job.id)
        self.put_in([job])
        self.read_what_was_told(job.id)

    @rule(name=queue, crashes=st.integers(0, 1))
    def an_occurrence_begins_with_nothing(self, name: str, crashes: int) -> None:
        """Expect no checkpoint of the occurrence before, and no crash that keeps the job back."""
        [job] = self._plain(name, 1)
        for _ in range(crashes):
            self.take(name, self.new_pod(), 1, 1)
            self.clock.advance(LEASE)
            self.look_for_stale()
            self.bring_back(REVIVALS["again"])
        claims = self.take(name, self.new_pod(), 1, 1)
        self.tell(claims, 1, 1, NewProgress(1))
        for each in claims:
            self.do("jobs.save_checkpoint", each, '"mine"')
        self.end(claims, ENDINGS["again"])
        self.read_what_was_told(job.id)
        self.take(name, self.new_pod(), 1, 0)
        self.look_at_jobs()

    @rule(name=queue, mode=st.sampled_from(["keep", "replace", "debounce", "keep-last"]))
    def checkpoint_of_other_content(self, name: str, mode: str) -> None:
        """A run saves, fails, and another request meets the job. Then the next run reads."""
        self.open(self._known(name))
        held = self.keyed(name, "told", mode)
        self.put_in([held])
        self.clock.advance(SECOND)
        claims = self.take(name, self.new_pod(), 100, 100)
        self.tell(claims, 1, 1, NewProgress(1))
        for each in claims:
            self.do("jobs.save_checkpoint", each, '"mine"')
        self.put_in([self.keyed(name, "told", mode, payload='{"n": 1}')])
        self.read_what_was_told(held.id)
        self.end(claims, ENDINGS["failed at once"])
        self.put_in([self.keyed(name, "told", mode, payload='{"n": 2}')])
        self.read_what_was_told(held.id)
        self.clock.advance(LEASE)
        self.take(name, self.new_pod(), 100, 100)
        self.read_what_was_told(held.id)
