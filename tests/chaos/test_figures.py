"""Figures count the time in which the store was there, in ledgers made by hand."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from tests.chaos.checker import judge
from tests.chaos.deeds import StoreDeeds
from tests.chaos.figures import Figure, figures_of
from tests.chaos.pace import QUICK
from tests.chaos.record import Outage, Record, Sending, Stop, now_ns, wall_ms
from tests.chaos.run import Outcome
from tests.support.ledger import Ledger
from tests.support.surroundings import a_job

SECOND = 1_000_000_000
BEGIN = now_ns()
POD = 11
ID = JobId("01JOB")


def after(seconds: float) -> int:
    return BEGIN + int(seconds * SECOND)


def outage(begin: float, end: float) -> Outage:
    return Outage("switch_primary", after(begin), (POD,), refused=True, to_ns=after(end))


class Story:
    """A job that ran during an outage, and was done at the end of everything."""

    def __init__(self, path: Path) -> None:
        self.record = Record(sendings={ID: Sending(BEGIN, BEGIN)})
        self._ledger = Ledger(path)

    def figures(self, done_at: float) -> dict[str, Figure]:
        finished = datetime.fromtimestamp(wall_ms(after(done_at)) / 1_000, UTC)
        stored = {ID: a_job(id=ID, status=JobStatus.DONE, token=1, finished_at=finished)}
        self._ledger.refresh()
        outcome = Outcome(self.record, self._ledger, stored, {}, set())
        verdict = judge(self.record, self._ledger, stored, outcome.counters, set())
        return {each.name: each for each in figures_of(outcome, verdict, QUICK)}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    path = tmp_path / "ledger"
    lines = [(event, after(at)) for event, at in (("start", 1), ("end", 1.5))]
    path.write_text(
        "".join(f"{event} {ID} 1 1 {POD} {at} {int(wall_ms(at) * 1e6)}\n" for event, at in lines)
    )
    return Story(path)


def test_an_outcome_is_resolved_in_the_time_that_the_store_was_there(story: Story) -> None:
    story.record.outages = [outage(1, 3), outage(4, 14), outage(16, 26)]

    figure = story.figures(done_at=27)["Unknown outcomes resolved after a fault, longest"]

    assert figure.measured == "4.00 s of 3"
    assert figure.is_met


def test_an_outcome_that_is_late_although_the_store_is_there_misses_the_aim(story: Story) -> None:
    story.record.outages = [outage(1, 3)]

    figure = story.figures(done_at=27)["Unknown outcomes resolved after a fault, longest"]

    assert (figure.measured, figure.is_met) == ("24.00 s of 1", False)


def test_a_stop_beside_an_outage_has_a_line_of_its_own(story: Story) -> None:
    story.record.outages = [outage(11, 14)]
    story.record.stops = {
        1: Stop(1, after(5), after(6.5), 0),
        2: Stop(2, after(10), after(15), 1),
    }

    figures = story.figures(done_at=2)

    assert figures["SIGTERM to exit, longest"].measured == "1.50 s of 1"
    assert figures["SIGTERM to exit, longest"].is_met
    assert figures["SIGTERM to exit beside an outage, longest"].measured == "5.00 s of 1"


def test_a_pod_works_again_with_a_run_that_began_since(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    unused: Any = None
    deeds = StoreDeeds(unused, unused, QUICK, Record(), ledger, unused)
    for at, has_begun in ((1, False), (3, True)):
        with path.open("a") as file:
            file.write(f"start {ID} 1 {at} {POD} {after(at)} 0\n")
        ledger.refresh()
        assert deeds.has_each_begun({POD}, after(2)) is has_begun
