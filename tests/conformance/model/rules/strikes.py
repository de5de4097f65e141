"""Jobs that strikes hold are released once their strikes are not in force any more."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forge_jobs.model.jobs import After, Line
from forge_jobs.model.strikes import Struck
from tests.conformance.model.endings import ENDINGS, MARKS
from tests.conformance.model.program import queue
from tests.conformance.model.rules.unique_keys import UniqueKeys, mode

fate = st.sampled_from([None, Struck(MARKS[0]), Struck(MARKS[1], "it is struck")])
fates = st.lists(fate, min_size=3, max_size=3)
lines = st.lists(st.sampled_from([None, Line("a"), Line("b")]), min_size=3, max_size=3)
in_force = st.sets(st.sampled_from(MARKS)).map(sorted)


class Strikes(UniqueKeys):
    @rule(name=queue, how=st.sampled_from(["struck", "struck by another"]), many=st.integers(1, 3))
    def hold_what_is_due(self, name: str, how: str, many: int) -> None:
        self.stock(name)
        self.end(self.take(name, self.new_pod(), many, many), ENDINGS[how])

    @rule(name=queue, fates=st.lists(fate, min_size=1, max_size=4))
    def enqueue_struck(self, name: str, fates: list[Struck | None]) -> None:
        self.put_in([self.new_request(name, struck=each) for each in fates])

    @rule(name=queue, modes=st.lists(mode, min_size=2, max_size=3), fates=fates, lines=lines)
    def enqueue_struck_with_a_key(
        self, name: str, modes: list[str], fates: list[Struck | None], lines: list[Line | None]
    ) -> None:
        """Enqueue, in one call, requests with one key of which strikes mean some."""
        self.put_in(
            [
                self.keyed(name, "struck", each, struck=struck, sequence=line)
                for each, struck, line in zip(modes, fates, lines, strict=False)
            ]
        )

    @rule(name=queue, child=fate, where=queue, fails=st.sampled_from(["cancel", "continue"]))
    def strike_what_waits(self, name: str, child: Struck | None, where: str, fails: Any) -> None:
        """A struck job between two others, one of another queue."""
        parent = self.new_request(name)
        middle = self.new_request(where, struck=child, after=(After(parent.id),))
        self.put_in([parent, middle, self.new_request(name, after=(After(middle.id, fails),))])

    @rule(marks=in_force)
    def release_struck(self, marks: list[str]) -> None:
        self.do("jobs.release_struck", marks, 1_000)
