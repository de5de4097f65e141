"""Dead jobs leave letters, which are relayed late, twice and in parts."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from forge_jobs.model.letters import DEAD_LETTER_KIND, Letter
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.storage.letters import BYTES_AT_ONCE
from tests.conformance.model.endings import ENDINGS
from tests.conformance.model.program import LEASE, QUEUES, few, queue
from tests.conformance.model.rules.lives import Lives
from tests.support.factories import error, failed

to = st.sampled_from([*QUEUES, ""])


class Letters(Lives):
    _have_been_large = False
    """Large payloads take time, so once per program."""

    def relay_all(self) -> None:
        """Relay as a pod does."""
        found = self.read_letters()
        if found:
            self.put_in([each.job for each in found])
            self.do("jobs.forget_letters", found)

    def read_letters(self) -> list[Letter]:
        read: list[Letter] = self.do("jobs.letters", 1_000)
        ids = {each.job.id for each in read}
        # A pod may still relay a letter that another has read before.
        self.letters = [each for each in self.letters if each.job.id not in ids] + read
        return read

    @rule(name=queue, to=to)
    def name_a_queue_for_letters(self, name: str, to: str) -> None:
        self.do("config.set_queue", name, QueueChange(dead_letter=to))

    @rule(
        name=queue,
        to=to,
        how=st.sampled_from(["dead", "dead without an error"]),
        kept=st.sampled_from([Retention(dead=timedelta(0)), Retention(dead=LEASE)]),
    )
    def a_job_dies_and_leaves_a_letter(self, name: str, to: str, how: str, kept: Retention) -> None:
        """Expect the payload in the letter, also where nothing of a dead job is kept."""
        self.do("config.set_queue", name, QueueChange(dead_letter=to, retention=kept))
        self.stock(name)
        lease = self.new_pod()
        self.do("config.set_queue", name, QueueChange(max_workers=4))
        self.share_out()
        claims = self.take(name, lease, 1, 1)
        written = len(self.world.letters)
        self.drain_wakeups()
        self.end(claims, ENDINGS[how])
        if len(self.world.letters) > written:
            self.letters_wake()
        self.do("jobs.letters", 1_000, not_to=(to,))
        self.read_letters()
        self.do("jobs.heartbeat", lease, [], LEASE)

    @rule(name=queue)
    def a_letter_dies(self, name: str) -> None:
        """Expect no letter of a letter, also where the queue of letters names another."""
        [to] = [each for each in QUEUES if each != name]
        for each, other in ((name, to), (to, name)):
            self.do("config.set_queue", each, QueueChange(dead_letter=other))
        self._plain(name, 1)
        self.end(self.take(name, self.new_pod(), 1, 1), ENDINGS["dead"])
        self.relay_all()
        self.open(to)
        lease = self.new_pod(kinds=(DEAD_LETTER_KIND,))
        self.end(self.take(to, lease, 100, 100), ENDINGS["dead"])
        self.read_letters()

    @rule(name=queue, failures=st.integers(1, 3))
    def a_job_dies_of_several_errors(self, name: str, failures: int) -> None:
        """Expect the newest errors in the letter, those that have room."""
        self.do("config.set_queue", name, QueueChange(dead_letter="r"))
        self.put_in([self.new_request(name, priority=-9)])
        self.open(name)
        lease = self.new_pod()
        for number in range(failures):
            text = f"{number} " * 10_000
            self.end(self.take(name, lease, 1, 1), failed(error=error(text, attempt=number + 1)))
        self.end(self.take(name, lease, 1, 1), ENDINGS["dead"])
        self.read_letters()

    @precondition(lambda self: not self._have_been_large)
    @rule(name=queue)
    def payloads_of_letters_come_in_parts(self, name: str) -> None:
        """Expect that one answer is bounded by the size of its jobs or letters."""
        self._have_been_large = True
        self.relay_all()
        self.do("config.set_queue", name, QueueChange(dead_letter="r"))
        text = '"' + "x" * (BYTES_AT_ONCE * 3 // 5) + '"'
        large = [self.new_request(name, priority=-9, payload=text) for _ in range(3)]
        self.put_in(large)
        self.open(name)
        lease = self.new_pod()
        written = len(self.world.letters)
        # Jobs of other rules may stand before these.
        left = {each.id for each in large}
        while left and (claims := self.take(name, lease, 3, 3)):
            left -= {each.job_id for each in claims}
            self.end(claims, ENDINGS["dead"])
        assert not left, "no claim brings a due job of an open queue"
        self.letters_come_in_parts(len(self.world.letters) - written)
        self.operate("delete", *(each.id for each in large))
        # Never stored again: of their letters not all would fit into one answer.
        self.requests = [each for each in self.requests if each.id not in {one.id for one in large}]

    @rule(not_to=st.sampled_from([(), QUEUES, QUEUES[:1]]))
    def look_at_letters(self, not_to: tuple[str, ...]) -> None:
        self.do("jobs.letters", 1_000, not_to=not_to)
        self.read_letters()

    @precondition(lambda self: self.letters)
    @rule(which=few)
    def pass_letters_over(self, which: list[int]) -> None:
        """Ask for all letters but some, as after a store has refused these."""
        chosen = [self.pick(self.letters, number) for number in which]
        self.do("jobs.letters", 1_000, skip=chosen)

    @precondition(lambda self: self.letters)
    @rule(which=few)
    def store_letters(self, which: list[int]) -> None:
        """Store jobs of letters: for the first time, or again since the reply was lost."""
        self.put_in([self.pick(self.letters, number).job for number in which])

    @precondition(lambda self: self.letters)
    @rule(which=few)
    def forget_letters(self, which: list[int]) -> None:
        """Forget letters whose jobs were stored. A pod may do so twice."""
        stored = {request.id for request in self.requests}
        chosen = [self.pick(self.letters, number) for number in which]
        chosen = [each for each in chosen if each.job.id in stored]
        if chosen:
            self.do("jobs.forget_letters", chosen)

    @rule()
    def relay(self) -> None:
        self.relay_all()
