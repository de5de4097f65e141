"""Parts of a pod that need no store: wake-ups, the watchdog, events, the report of a stop."""

from datetime import timedelta

import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import new_job_id
from forge_jobs.runtime.heartbeat.watchdog import Watchdog
from forge_jobs.runtime.pod.stop_report import StopReport
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.service import Wakeup
from tests.support.runtimes import seconds

pytestmark = pytest.mark.anyio


async def test_a_ring_before_the_wait_is_not_lost_and_counts_once() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    wakeup.wake()
    assert await wakeup.wait(seconds(10))
    assert not await wakeup.wait(timedelta(0))


class _Silent:
    """A loop that answers no ping."""

    def call_soon_threadsafe(self, _: object) -> None:
        """Never."""


def _watchdog() -> Watchdog:
    return Watchdog(
        _Silent(),  # type: ignore[arg-type]
        blocked_after=seconds(2),
        hung_after=seconds(4),
        tick=seconds(0.25),
    )


def test_a_machine_that_slept_has_not_blocked_its_loop() -> None:
    watchdog = _watchdog()
    assert not watchdog.check(0.0)
    assert not watchdog.check(0.25)
    assert not watchdog.check(3600.0)
    assert not watchdog.is_blocked


def test_a_loop_that_answers_nothing_is_blocked_and_later_hung() -> None:
    watchdog = _watchdog()
    hung = [watchdog.check(0.25 * tick) for tick in range(20)]
    assert watchdog.blocked_count == 1
    assert watchdog.is_blocked
    assert hung.index(True) == 16


def test_a_stop_is_clean_when_the_pod_has_left_and_no_end_is_left() -> None:
    job_id = new_job_id()
    reports = [StopReport(), StopReport(left=False), StopReport(unstored=(job_id,))]
    assert [report.exit_code for report in reports] == [0, 1, 1]


async def test_events_put_back_come_before_those_made_meanwhile() -> None:
    class Away:
        async def append_events(self, _: object) -> None:
            buffer.record(EventKind.POD_STOPPED)
            raise Unavailable("the test switched the store off")

    buffer = EventBuffer(Away())  # type: ignore[arg-type]
    buffer.record(EventKind.POD_STARTED)
    buffer.record(EventKind.LEADER)
    with pytest.raises(Unavailable):
        await buffer.flush_once()
    kinds = [event.kind for event in buffer._take()]
    assert kinds == [EventKind.POD_STARTED, EventKind.LEADER, EventKind.POD_STOPPED]
