"""The time of a call is asked of the store once, and keeps no other call waiting."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from forge_jobs.storage.sql.base.transaction import Flavor, Tx


class Clock:
    """A flavor whose store answers one question for the time when ``answers`` is set."""

    def __init__(self, time: int) -> None:
        self.time = time
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.questions = 0

    def now_us(self, _connection: Any) -> int:
        """Return the time, once the store answers."""
        self.questions += 1
        self.asked.set()
        assert self.answers.wait(20), "another call waited for this one"
        return self.time


def call(clock: Clock) -> Tx:
    """A transaction that has not asked for the time."""
    return Tx(cast("Any", None), cast("Flavor", clock), "part")


def test_a_call_that_waits_for_the_time_keeps_no_other_thread_waiting() -> None:
    silent, sound = Clock(1), Clock(2)
    sound.answers.set()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: call(silent).now)
        assert silent.asked.wait(20)
        assert pool.submit(lambda: call(sound).now).result(30) == 2
        silent.answers.set()
        assert first.result(30) == 1


def test_the_time_stays_the_same_for_the_whole_call() -> None:
    clock = Clock(1)
    clock.answers.set()
    tx = call(clock)
    assert tx.now == 1
    clock.time = 2
    assert tx.now == 1
    assert clock.questions == 1
